from common import *
def run(T,ctas,seed,kind,fill='noise',make=None,offset=64,nonce=None,sc=None,planes=2):
    rng=np.random.default_rng(seed); g=torch.Generator().manual_seed(seed)
    logits=make(T) if make else torch.randn(T,256,generator=g); bias=torch.randn(256,generator=g).mul(0.1).bfloat16()
    out=torch.full((T,HIDDEN),float('nan'),dtype=torch.bfloat16); raw,s=sc or scratch(T,fill,seed); nonce=nonce or int(rng.integers(1,2**63))*2+1
    counts=np.full((ctas,32),-1,np.int32); lists=np.full((ctas*2,T*8),-1,np.int32); d=delays(ctas,kind,rng); t=time.time()
    sweeps=lib.emu_route(ptr(logits),ptr(bias),offset,ctypes.c_float(2.5),ptr(out),vp(s.ctypes.data),T,ctas,seed,ctypes.c_uint64(nonce),vp(d.ctypes.data),vp(counts.ctypes.data),vp(lists.ctypes.data),planes)
    chosen=np.asarray(M.select(logits,bias)); weight=np.asarray(M.weigh(logits,chosen,2.5)); local=chosen-offset
    want=[[t for t in range(T) if (local[t]==e).any()] for e in range(32)]
    assert (counts==np.array([len(x) for x in want])).all(),'counts'
    flat=np.array(sum(want,[]),np.int32); n=len(flat); assert (lists[:,:n]==flat).all(),'lists'; assert (lists[:,n:]==-1).all(),'beyond'
    words,slots=told(s,T); lo,hi=nonce&0xffffffff,nonce>>32
    assert (slots[:,:,1]==lo).all() and (slots[:,:,3]==hi).all(),'slot nonces'
    row={(e,t):i for i,(e,t) in enumerate((e,t) for e in range(32) for t in want[e])}
    wr=np.array([[row.get((local[t,i],t),-1) for i in range(8)] for t in range(T)],np.int32)
    assert (slots[:,:,0].view(np.int32)==wr).all(),'slot rows'
    w=slots[:,:,2].copy().view(np.float32); assert np.allclose(w,weight,rtol=1e-5,atol=1e-7),'weights'
    blank=(wr<0).all(1); z=out.view(torch.int16).numpy(); assert (z[blank]==0).all() and (out[torch.from_numpy(~blank)].isnan()).all(),'zeros'
    loc=words[:2*T].reshape(T,2); assert ((loc[:,0]>>np.uint64(32))==lo).all()
    print(T,'tokens',ctas,'CTAs',kind,'rows',n,'blank',int(blank.sum()),'sweeps',sweeps,f'{time.time()-t:.1f}s ok',flush=True)
if __name__=='__main__':
    run(1,2,1,'none'); run(31,2,2,'some'); run(33,4,3,'some'); run(128,6,4,'some'); run(129,6,5,'late')
    run(513,6,6,'some'); run(901,10,7,'some'); run(901,4,8,'late'); run(300,8,9,'last')
    run(500,6,10,'some',make=lambda T:route_to([[70,*range(7)]]*T)); run(200,4,11,'some',make=lambda T:route_to([list(range(72,80))]*T)); run(100,4,12,'some',make=lambda T:route_to([list(range(100,108))]*T))
    run(700,4,13,'some',make=lambda T:route_to([[*range(72,72+t%9),*range(8-t%9)] for t in range(T)]))
    run(4096,12,14,'some'); run(4095,6,15,'none'); run(1536,8,16,'some',fill=0); run(1536,8,17,'some',fill=0xff)
