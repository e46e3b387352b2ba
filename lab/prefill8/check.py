# every side compiles: check.py
import subprocess, shutil, re, sys
from pathlib import Path
sys.path.insert(0, 'clones/prefill8-lab/lab'); sys.path.insert(0, 'main/.venv/lib/python3.11/site-packages')
import patches
import tvm_ffi.libinfo as l
V='main/.venv/lib/python3.11/site-packages/tvm_ffi/include'
for side in sys.argv[1:] or patches.SIDES:
    f=Path('clones/prefill8-lab/check',side); shutil.rmtree(f,ignore_errors=True); f.mkdir(parents=True)
    for p in ('common/*.cuh','gdn_prefill/*.cu*'):
        for x in Path('clones/prefill8/solutions').glob(p): shutil.copy(x,f)
    patches.apply(side,f)
    d=subprocess.run(['/usr/local/cuda-13.0/bin/nvcc','-gencode=arch=compute_90a,code=sm_90a','-O3','-std=c++17','-Xptxas','-v','-I'+V,'-I'+l.find_dlpack_include_path(),'-cubin','-o','x.cubin','prefill.cu'],cwd=f,capture_output=True,text=True)
    print(side,d.returncode,[x.strip()[:150] for x in (d.stdout+d.stderr).splitlines() if re.search('error|C75|Used|[1-9][0-9]* bytes spill',x)],flush=True)
