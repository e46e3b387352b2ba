import ctypes, sys, time
import numpy as np, torch
sys.path.insert(0,'clones/moe')
from tests.oracles.moe import *
lib=ctypes.CDLL('clones/moe-lab/emu2/emu.so')
lib.scratch_bytes.restype=ctypes.c_int64
def emu(inputs, shape, ctas=3, seed=1, force_two=0):
    T=inputs['routing_logits'].shape[0]
    out=torch.full((T,HIDDEN),float('nan'),dtype=torch.bfloat16)
    n=lib.scratch_bytes(ctypes.c_int64(T))
    raw=np.full(n+4096,0xff,np.uint8); off=(-raw.ctypes.data)%1024; scratch=raw[off:off+n]
    p=lambda t: ctypes.c_void_p(t.data_ptr())
    v=list(inputs.values())
    o=max(-512,min(512,int(v[8])))
    lib.emu_moe(*[p(t) for t in v[:8]],o,ctypes.c_float(v[9]),p(out),ctypes.c_void_p(scratch.ctypes.data),T,shape,ctas,seed,force_two)
    return out,scratch
def ratio(got,want):
    e=(got.float()-want.float()).abs(); bad=(e>1)&(e/(want.float().abs()+1e-8)>0.3); return 1-bad.float().mean().item()
def compare(name,inputs,shape,**kw):
    t=time.time(); out,scratch=emu(inputs,shape,**kw); t1=time.time()-t
    (want,)=oracle(**inputs)
    s=want.pow(2).mean(1,keepdim=True).sqrt()
    err=((out.double()-want).abs()/(s+1e-30)).amax(1)
    nz=(want!=0).any(1)
    print(name,'shape',shape,'ratio',round(ratio(out[nz],want[nz]),5) if nz.any() else 'none','max err/rms',(err[nz].max().item() if nz.any() else 0),'zeros ok',bool((out[~nz]==0).all()),f'{t1:.1f}s','boxes once',lib.print_once(),flush=True)
    return out
if __name__=='__main__':
    w=zero_weights(); g=torch.Generator().manual_seed(1)
    for e in (0,5,31): fill_expert(w,e,g)
    which=sys.argv[1:] or ['116','464']
    for sh in map(int,which):
        rows=sh%100
        ch=[[69,*range(0,7)], [64,69,95,*range(0,5)], list(range(100,108))]
        if rows>16: ch=ch+[[69,0,1,2,3,4,5,6]]*(rows//2+1)
        x=random_inputs(route_to(ch),w,64,seed=2)
        compare('mix',x,sh,seed=sh)
