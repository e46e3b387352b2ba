import sys,os; sys.argv=['x','step','none','0','x']
sys.path.insert(0,'./lab/gdn_prefill'); os.chdir('clones/prefill')
import lab, subprocess
from pathlib import Path
V='.venv/lib/python3.11/site-packages/tvm_ffi'
import tvm_ffi.libinfo as l
for name in lab.VARIANTS:
    f=Path('clones/prefill-lab/variants',str(list(lab.VARIANTS).index(name)))
    lab.make_variant(name,f)
    d=subprocess.run(['/usr/local/cuda-13.0/bin/nvcc','-gencode=arch=compute_90a,code=sm_90a','-O3','-std=c++17','-Xptxas','-v','-I'+V+'/include','-I'+l.find_dlpack_include_path(),'-cubin','-o','x.cubin','prefill.cu'],cwd=f,capture_output=True,text=True)
    print(name,d.returncode,[x.split(',')[1] for x in d.stderr.splitlines() if 'spill' in x],[x[:150] for x in d.stderr.splitlines() if 'error' in x or 'C75' in x],flush=True)
