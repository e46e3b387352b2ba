import ctypes, sys, time
import numpy as np, torch
sys.path.insert(0,'clones/moe6')
from tests.oracles.moe import *
lib=ctypes.CDLL('clones/moe6-emu/emu.so'); oldlib=ctypes.CDLL('clones/moe6-emu/old.so')
for l in (lib,oldlib): l.scratch_bytes.restype=ctypes.c_int64
lib.told_at.restype=ctypes.c_int64
def args_of(inputs,out):
    p=lambda t: ctypes.c_void_p(t.data_ptr()); v=list(inputs.values()); o=max(-512,min(512,int(v[8])))
    return [p(t) for t in v[:8]]+[o,ctypes.c_float(v[9]),p(out)]
def scratch_of(l,T,seed=None):
    n=l.scratch_bytes(ctypes.c_int64(T)); raw=np.full(n+4096,0xff,np.uint8); off=(-raw.ctypes.data)%1024; s=raw[off:off+n]
    if seed is not None: s[:2**20]=np.random.default_rng(seed).integers(0,256,len(s[:2**20]),dtype=np.uint8)
    return raw,s
def blank(T): return torch.full((T,HIDDEN),float('nan'),dtype=torch.bfloat16)
def old(inputs,shape,ctas=3,seed=1,force_two=0):
    T=inputs['routing_logits'].shape[0]; out=blank(T); raw,s=scratch_of(oldlib,T)
    oldlib.emu_moe(*args_of(inputs,out),ctypes.c_void_p(s.ctypes.data),T,shape,ctas,seed,force_two); return out
def new(inputs,shape,ctas=3,seed=1,resident=0,nonce=0x123456789abcdef1,scratch=None):
    T=inputs['routing_logits'].shape[0]; out=blank(T); raw,s=scratch or scratch_of(lib,T,seed)
    lib.emu_moe(*args_of(inputs,out),ctypes.c_void_p(s.ctypes.data),T,shape,ctas,seed,resident,ctypes.c_uint64(nonce)); return out
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
