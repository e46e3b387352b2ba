# every side compiles, one after the other: python3 check.py [SIDE...]; a Python that has tvm_ffi
import re, shutil, subprocess, sys, tempfile, time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))
import patches
import tvm_ffi.libinfo as info

for side in sys.argv[1:] or ["new", *patches.SIDES]:
    folder, begin = Path(tempfile.mkdtemp()), time.time()
    for p in ("common/*.cuh", "gdn_prefill/*.cu*"):
        for x in (HERE / "tree/solutions").glob(p):
            shutil.copy(x, folder)
    patches.apply(side, folder)
    nvcc = next(p for p in (shutil.which("nvcc"), "/usr/local/cuda-13.0/bin/nvcc") if p)
    done = subprocess.run([nvcc, "-gencode=arch=compute_90a,code=sm_90a", "-O3", "-std=c++17", "-Xptxas", "-v", "-I" + info.find_include_path(),
                           "-I" + info.find_dlpack_include_path(), "-cubin", "-o", "x.cubin", "prefill.cu"], cwd=folder, capture_output=True, text=True)
    seen = [x.strip()[:170] for x in (done.stdout + done.stderr).splitlines() if re.search("error|C75|Used|[1-9][0-9]* bytes spill", x)]
    print(side, done.returncode, f"{time.time() - begin:.0f} s", seen, flush=True)
    shutil.rmtree(folder)
