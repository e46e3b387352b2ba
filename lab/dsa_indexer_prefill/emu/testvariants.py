import sys,subprocess,os
sys.path.insert(0,'./lab/dsa_indexer_prefill')
import variants as v
inc=open('clones/longctx-lab/inc').read().split()
for name in sys.argv[1:] or v.VARIANTS:
    f=v.sources('clones/longctx'); v.VARIANTS[name](f)
    d=f'clones/longctx-lab/var_{name}'; os.makedirs(d,exist_ok=True)
    for k,t in f.items(): open(f'{d}/{k}','w').write(t)
    r=subprocess.run(['/usr/local/cuda-13.0/bin/nvcc','-std=c++17','-O3','-gencode=arch=compute_90a,code=sm_90a',*inc,'-Xptxas=-v','-cubin','-o','n.cubin','prefill.cu'],cwd=d,capture_output=True,text=True)
    out=r.stdout+r.stderr
    print(name,r.returncode,[l[:160] for l in out.splitlines() if 'C75' in l or ('spill' in l and not ' 0 bytes spill stores, 0 bytes spill loads' in l) or 'rror' in l or 'warn' in l][:8], flush=True)
