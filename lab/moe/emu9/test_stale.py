"""Scratch that an earlier call with another nonce left half done (it never forgot), and the same nonce replayed after a forgetful end."""
from test_one import *
T=12
a=random_inputs(route_to((few*5)[:12]),w,64,seed=3); b=random_inputs(route_to((few*5)[1:13]),w,64,seed=4)
raw,s=scratch_of(lib,T,9)
o=new(a,116,5,1,2,nonce=5,scratch=(raw,s)); 
at=lib.told_at(ctypes.c_void_p(s.ctypes.data),T)
n=12*2+1+96
r=np.random.default_rng(1)
for k in range(3):
    words=s[at:at+8*n].view(np.uint64)
    words[:]=r.integers(0,2**63,n,dtype=np.uint64) if k else (np.uint64(0x7777777777777777)<<np.uint64(8))+np.uint64(3)
    s[at+8*n:at+8*n+0]=0
    print(k,same(new(b if k%2 else a,116,6,k,3,nonce=0x1234567812345678+k,scratch=(raw,s)),old(b if k%2 else a,116)),flush=True)
