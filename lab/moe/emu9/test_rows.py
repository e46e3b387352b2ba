from test_emu import *
import tests.oracles.moe as M
w=zero_weights(); bad=0; n=0
for T in map(int,sys.argv[1:] or [1,2,7,10,11,12,13,16,22,31,32,33,58,64,65,80,96,97,127,128,129,352,353,400]):
  for kind in ('rand','ties','nan','few','ids','low'):
    if T>130 and kind!='nan': continue
    g=torch.Generator().manual_seed(T); lg=torch.randn(T,256,generator=g)*2
    if kind=='ties': lg=(lg*.6).round()
    if kind=='nan': lg[torch.rand(T,256,generator=g)<0.3]=float('nan'); lg[torch.rand(T,256,generator=g)<0.2]=-float('inf')
    if kind=='few': lg=torch.where(lg>3,lg,torch.full_like(lg,-float('inf')))
    if kind=='ids': lg=-(torch.arange(256).float()%(torch.arange(T)%9+1)[:,None])
    if kind=='low': lg=lg*20-80
    off={'rand':64,'ties':0,'nan':96,'few':-20,'ids':224,'low':32}[kind]
    x=random_inputs(lg,w,off,seed=T)
    out=blank(T); raw,s=scratch_of(oldlib,T); oldlib.emu_moe(*args_of(x,out),ctypes.c_void_p(s.ctypes.data),T,-1,1,T,0)
    o=np.zeros(7,np.int64); oldlib.emu_routing(ctypes.c_void_p(s.ctypes.data),T,ctypes.c_void_p(o.ctypes.data))
    sw=s[o[0]:o[0]+T*32].view(np.uint32).copy(); sr=s[o[1]:o[1]+T*32].view(np.int32).copy(); c=s[o[3]:o[3]+128].view(np.int32).copy(); R=c.sum(); rt=s[o[2]:o[2]+R*4].view(np.int32).copy()
    for ctas,res in ((1,0),(3,1),(7,3)) if T<=130 else ((5,2),):
        raw2,s2=scratch_of(lib,T,T); lib.emu_moe(*args_of(x,out),ctypes.c_void_p(s2.ctypes.data),T,1,ctas,T+ctas,res,ctypes.c_uint64(77+T<<32|T*12345))
        o2=np.zeros(3,np.int64); lib.new_routing(ctypes.c_void_p(s2.ctypes.data),T,ctypes.c_void_p(o2.ctypes.data))
        sl=s2[o2[0]:o2[0]+T*128].view(np.uint32).reshape(-1,4); rt2=s2[o2[1]:o2[1]+R*4].view(np.int32); c2=s2[o2[2]:o2[2]+128].view(np.int32)
        ok=[bool((sl[:,0].view(np.int32)==sr).all()),bool((sl[:,2]==sw).all()),bool((rt2==rt).all()),bool((c2==c).all())]
        n+=1
        if not all(ok): bad+=1; print(T,kind,ctas,res,ok,flush=True)
  print(T,'rows',int(R),'bad so far',bad,'of',n,flush=True)
print('bad',bad,'of',n)
