from test_emu import *
import tests.oracles.moe as M
lib.emu_routing.argtypes=[ctypes.c_void_p,ctypes.c_int,ctypes.c_void_p]
w=zero_weights(); bad=0
for T,kind in [(100,'ties'),(100,'nan'),(120,'few'),(128,'rand'),(300,'ties'),(64,'same'),(90,'ids')]:
    g=torch.Generator().manual_seed(T)
    lg=torch.randn(T,256,generator=g)
    if kind=='ties': lg=(lg*1.2).round()
    if kind=='nan': lg[torch.rand(T,256,generator=g)<0.3]=float('nan'); lg[torch.rand(T,256,generator=g)<0.2]=-float('inf')
    if kind=='few': lg=torch.where(lg>1.5,lg,torch.full_like(lg,-float('inf')))
    if kind=='same': lg[:]=0.25
    if kind=='ids': lg=-(torch.arange(256).float()%(torch.arange(T)%9+1)[:,None])
    for off in (0,96,224):
        x=random_inputs(lg,w,off,seed=T)
        if kind in('ties','same','ids'): x['routing_bias']=torch.zeros(256,dtype=torch.bfloat16)
        out,scratch=emu(x,-1,seed=T,force_two=T%3==0)
        o=np.zeros(7,np.int64); lib.emu_routing(scratch.ctypes.data,T,o.ctypes.data)
        sr=scratch[o[1]:o[1]+T*32].view(np.int32).reshape(T,8).copy(); sw=scratch[o[0]:o[0]+T*32].view(np.float32).reshape(T,8).copy()
        ch=M.select(x['routing_logits'],x['routing_bias']); loc=(ch>=off)&(ch<off+32)
        wt=M.weigh(x['routing_logits'],ch,x['routing_bias'] if False else x['routing_scaling'] if 'routing_scaling' in x else x['routed_scaling_factor'])
        ok=((sr>=0)==loc).all(); fin=np.isfinite(wt); okw=np.allclose(sw[fin],wt[fin],rtol=2e-5)
        c=scratch[o[3]:o[3]+128].view(np.int32); okc=(np.bincount((ch[loc]-off).astype(int),minlength=32)==c).all()
        bad+=not(ok and okw and okc); print(T,kind,off,bool(ok),bool(okw),bool(okc),flush=True)
print('bad',bad)
