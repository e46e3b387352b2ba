import ctypes, sys, time, os, hashlib
sys.path.insert(0,'REPO')
import numpy as np, torch
import tests.oracles.moe as M
from tests.oracles.moe import *
vp=ctypes.c_void_p
def ptr(t): return vp(t.data_ptr())
LIBS={}
def lib(n):
    if n not in LIBS:
        l=ctypes.CDLL(f'/tmp/emu9/{n}.so'); l.scratch_bytes.restype=ctypes.c_int64; LIBS[n]=l
    return LIBS[n]
def run(n,x,ctas,seed,nonce,scratch,delay):
    T=x['routing_logits'].shape[0]; l=lib(n)
    out=torch.full((T,7168),float('nan'),dtype=torch.bfloat16)
    l.emu_stream(ptr(x['routing_logits']),ptr(x['routing_bias']),ptr(x['hidden_states']),ptr(x['hidden_states_scale']),ptr(x['gemm1_weights']),ptr(x['gemm1_weights_scale']),ptr(x['gemm2_weights']),ptr(x['gemm2_weights_scale']),ctypes.c_int(x['local_expert_offset']),ctypes.c_float(x['routed_scaling_factor']),ptr(out),vp(scratch.ctypes.data),T,ctas,seed,ctypes.c_uint64(nonce),delay.ctypes.data_as(vp))
    return out
def scratch_of(n,T,seed):
    b=lib(n).scratch_bytes(ctypes.c_int64(T)); raw=np.random.default_rng(seed).integers(0,256,b+4096,dtype=np.uint8); off=(-raw.ctypes.data)%1024
    s=raw[off:off+b];
    return raw, s
