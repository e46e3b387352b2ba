"""Tiles against the oracle, and against a reference that quantises C as they do."""
from test_emu import *
import tests.oracles.moe as M
def quantised(x):
    chosen=M.select(x['routing_logits'],x['routing_bias']); weight=M.weigh(x['routing_logits'],chosen,x['routed_scaling_factor'])
    T=len(chosen); a=M.dequantise(x['hidden_states'],x['hidden_states_scale'].T) if False else (x['hidden_states'].double().unflatten(1,(-1,128))*x['hidden_states_scale'].T.double()[:,:,None]).flatten(1)
    out=torch.zeros(T,HIDDEN,dtype=torch.float64)
    for e in range(32):
        tok,slot=np.nonzero(chosen==e+x['local_expert_offset'])
        if not len(tok): continue
        w1=(x['gemm1_weights'][e].float().view(32,128,56,128)*x['gemm1_weights_scale'][e][:,None,:,None]).view(4096,7168).double()
        w2=(x['gemm2_weights'][e].float().view(56,128,16,128)*x['gemm2_weights_scale'][e][:,None,:,None]).view(7168,2048).double()
        t=torch.from_numpy(tok); up,gate=(a[t]@w1.T).chunk(2,1); c=torch.nn.functional.silu(gate)*up
        c=c.unflatten(1,(16,128)); s=(c.abs().amax(2,keepdim=True)/448).clamp(min=1.2e-38); c=((c/s).float().to(torch.float8_e4m3fn).double()*s).flatten(1)
        o=(c@w2.T).float().bfloat16().double()
        out[t]+=o*torch.from_numpy(weight[tok,slot]).double()[:,None]
    return out
def check(name,choices,ctas,seed,offset=64,logits=None):
    x=random_inputs(route_to(choices) if logits is None else logits,w,offset,seed=seed)
    t=time.time(); out,_=emu(x,528,ctas=ctas,seed=seed,force_two=1); dt=time.time()-t
    (want,)=oracle(**x); q=quantised(x); nz=(want!=0).any(1); s=want.pow(2).mean(1,keepdim=True).sqrt()+1e-30
    err=((out.double()-q).abs()/s)[nz]; 
    print(name,len(out),'tokens, oracle ratio',round(ratio(out[nz],want[nz]),4) if nz.any() else 'none','all rows',round(ratio(out,want),4),'| to quantised: max/rms',round(err.max().item(),5) if nz.any() else 0,'mean',round(err.mean().item(),6) if nz.any() else 0,'zeros',bool((out[~nz]==0).all()),'finite',bool(torch.isfinite(out).all()),f'{dt:.1f}s',flush=True)
    if nz.any() and err.max()>0.1:
        b=err.unflatten(1,(-1,64)).amax(2); print('  worst column blocks',b.amax(0).argsort(descending=True)[:6].tolist(),'rows',err.amax(1).argsort(descending=True)[:8].tolist())
w=zero_weights(); g=torch.Generator().manual_seed(1)
for e in (0,5,31): fill_expert(w,e,g)
five=[69,*range(7)]; zero=[64,*range(7)]; last=[95,*range(7)]; none=list(range(100,108)); three=[64,69,95,*range(5)]
CASES={'one row':([five],2,1),'none':([none]*3,4,2),'few':([five,three,none,zero],6,3),'64':([five]*64,4,4),'65':([five]*65,2,5),
 '129':([five]*129+[none]*2+[zero],4,6),'ragged':([five]*255+[last]*130+[three]*2+[none]*5+[zero]*3,6,7),'all on one':([five]*390,8,8)}
for n in sys.argv[1:] or CASES: check(n,*CASES[n])
