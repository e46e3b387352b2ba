
from test_emu import *
lib.emu_routing.argtypes=[ctypes.c_void_p,ctypes.c_int,ctypes.c_void_p]
w=zero_weights()
for T in map(int,sys.argv[1:] or [1,2,7,8,9,16,31,32,33,58,64,65,80,96,97,127,128]):
    g=torch.Generator().manual_seed(T)
    logits=torch.randn(T,256,generator=g)*2
    if T%3==0: logits[::2]=0
    x=random_inputs(logits,w,64 if T%2 else 0,seed=T)
    got={}
    for two in (0,1):
        out,scratch=emu(x,-1,seed=T,force_two=two)
        off=np.zeros(7,np.int64); lib.emu_routing(scratch.ctypes.data,T,off.ctypes.data)
        sw=scratch[off[0]:off[0]+T*32].copy(); sr=scratch[off[1]:off[1]+T*32].view(np.int32).copy()
        c=scratch[off[3]:off[3]+128].view(np.int32).copy(); n=c.sum(); rt=scratch[off[2]:off[2]+n*4].view(np.int32).copy()
        got[two]=(sw,sr,rt,c)
    ok=[bool((a==b).all()) for a,b in zip(got[0],got[1])]
    print(T,'rows',int(got[0][3].sum()),'same',ok, 'ticket/done', flush=True)
    assert all(ok) and got[0][1].max()<n
