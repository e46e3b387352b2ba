from common import *
torch.set_num_threads(1)
def ratio(got,want):
    e=(got.float()-want.float()).abs(); bad=(e>1)&(e/(want.float().abs()+1e-8)>0.3); return 1-bad.float().mean().item()
exec(open('main/.gpu/lab/moe/emu6/test_tiles.py').read().split('def check')[0].split('import tests.oracles.moe as M\n')[1])
def emu(x,ctas,seed,kind,sc,nonce,planes):
    T=x['routing_logits'].shape[0]; out=torch.full((T,HIDDEN),float('nan'),dtype=torch.bfloat16); v=list(x.values()); rng=np.random.default_rng(seed); d=delays(ctas,kind,rng)
    lib.emu_moe(*[ptr(t) for t in v[:8]],max(-512,min(512,int(v[8]))),ctypes.c_float(v[9]),ptr(out),vp(sc[1].ctypes.data),T,ctas,seed,ctypes.c_uint64(nonce),vp(d.ctypes.data),1,planes); return out
def check(name,choices,ctas,seed,offset=64,kind='some',replays=0,fill='noise',logits=None,planes=2):
    T=len(choices) if logits is None else len(logits); sc=scratch(T,fill,seed); nonce=0x9876543212345671+2*seed; first=None
    for r in range(1+replays):
        lg=logits if logits is not None else route_to(choices[r:]+choices[:r])
        x=random_inputs(lg,w,offset,seed=seed+r); t=time.time(); out=emu(x,ctas,seed+r,kind,sc,nonce,planes); dt=time.time()-t
        words,slots=told(sc[1],T); assert (words==0).all() and (slots[:,:,1]==0).all() and (slots[:,:,3]==0).all(),'forgotten'
        (want,)=oracle(**x); q=quantised(x,planes); nz=(want!=0).any(1); s=want.pow(2).mean(1,keepdim=True).sqrt()+1e-30
        err=((out.double()-q).abs()/s)[nz]
        print(name,'planes',planes,'replay',r,T,'tokens',ctas,'CTAs',kind,'| to quantised: max/rms',round(err.max().item(),5) if nz.any() else 0,'mean',round(err.mean().item(),6) if nz.any() else 0,'ratio',round(ratio(out[nz],want[nz]),4) if nz.any() else 'none','zeros',bool((out[~nz]==0).all()),'finite',bool(torch.isfinite(out).all()),f'{dt:.0f}s',flush=True)
src=open('main/.gpu/lab/moe/emu6/test_tiles.py').read(); src=src[src.index('def quantised'):src.index('def check')].replace('def quantised(x):','def quantised(x,planes):')
a='c=((c/s).float().to(torch.float8_e4m3fn).double()*s).flatten(1)'; assert a in src
exec(src.replace(a,'v=(c/s).float(); k=v.to(torch.float8_e4m3fn).float(); c=(((k+(v-k).to(torch.float8_e4m3fn).float()) if planes==2 else k).double()*s).flatten(1)'))
w=zero_weights(); g=torch.Generator().manual_seed(1)
for e in (0,5,31): fill_expert(w,e,g)
five=[69,*range(7)]; zero=[64,*range(7)]; last=[95,*range(7)]; none=list(range(100,108)); three=[64,69,95,*range(5)]
CASES={'one row':lambda:check('one row',[five],2,1,replays=1),'none':lambda:check('none',[none]*3,4,2,replays=1),'few':lambda:check('few',[five,three,none,zero]*3,6,3,replays=2),
 '63/64':lambda:check('63/64',[five]*63+[last]*64+[none],4,11),'65/128':lambda:check('65/128',[five]*65+[last]*128+[none]+[zero],6,12,fill=0xff),'129/200':lambda:check('129/200',[five]*129+[last]*200+[three]*1+[none]*2,8,13,kind='some',replays=1),
 '129 late':lambda:check('129 late',[five]*129+[none]*2+[zero],4,6,kind='late'),'last':lambda:check('last',[five]*70+[zero]*1,6,16,kind='last'),
 '65':lambda:check('65',[five]*65+[none],2,5,kind='none',fill=0xff),
 'ragged':lambda:check('ragged',[five]*255+[last]*130+[three]*2+[none]*5+[zero]*3,6,7),
 'one plane':lambda:check('one plane',[five]*129+[last]*65+[none],4,14,planes=1),
 'rand':lambda:check('rand 150',None,6,21,offset=0,logits=torch.randn(150,256,generator=torch.Generator().manual_seed(21)))}
for n in sys.argv[1:] or CASES: CASES[n]()
