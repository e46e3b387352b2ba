import ctypes, sys, time, os
import numpy as np, torch
sys.path.insert(0,'clones/moe8')
from tests.oracles.moe import *
import tests.oracles.moe as M
here=os.path.dirname(os.path.abspath(__file__))
lib=ctypes.CDLL(here+'/emu.so'); lib.scratch_bytes.restype=ctypes.c_int64; lib.told_at.restype=ctypes.c_int64; lib.told_words.restype=ctypes.c_int64; lib.emu_route.restype=ctypes.c_long
vp=ctypes.c_void_p
def ptr(t): return vp(t.data_ptr())
def scratch(T,fill,seed=0):
    n=lib.scratch_bytes(ctypes.c_int64(T)); raw=np.empty(n+4096,np.uint8); off=(-raw.ctypes.data)%1024; s=raw[off:off+n]
    if fill=='noise': s[:2**22]=np.random.default_rng(seed).integers(0,256,len(s[:2**22]),dtype=np.uint8)
    else: s[:]=fill
    return raw,s
def told(s,T):
    slots=ctypes.c_int64(); at=lib.told_at(vp(s.ctypes.data),ctypes.c_int64(T),ctypes.byref(slots)); n=lib.told_words(ctypes.c_int64(T))
    return s[at:at+8*n].view(np.uint64), s[slots.value:slots.value+16*8*T].view(np.uint32).reshape(T,8,4)
def delays(ctas,kind,rng):
    d=np.zeros(ctas,np.int64)
    if kind=='some': 
        for c in range(ctas//2): d[2*c:2*c+2]=rng.integers(0,400)
    if kind=='late':   # only the first cluster runs until long after
        d[2:]=200000
    if kind=='last':
        d[:-2]=60000
    return d
