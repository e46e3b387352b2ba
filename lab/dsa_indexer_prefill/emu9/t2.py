from emulation import run
import torch,time,sys,numpy as np
from tests.oracles.dsa_indexer_prefill import *
def go(name,inp,exact=False,own=None,**kw):
    t=time.time(); ids,f,th=run(inp,**kw)
    try:
        if own is not None: check(ids,inp,iter(own))
        else: check(ids,inp,oracle(inp),None if exact else error_bounds(inp))
        r='ok'
    except AssertionError as e: r='WRONG '+str(e)
    print(f'{name}: {r} failed={f}/{len(ids)} th={th[:4]} {time.time()-t:.1f}s',flush=True)
which=sys.argv[1:]
if 'a' in which:
    go('9000x2',random_inputs([(0,9000),(5,8999)],9000,seed=2))
    go('12000 ragged',random_inputs([(0,12000),(5000,11999),(7,2056),(7,2055),(11000,12000),(3,3),(1,7000)],12000,seed=3))
    go('12000 many ctas',random_inputs([(0,12000),(5000,11999),(7,2056),(7,2055),(11000,12000),(3,3),(1,7000)],12000,seed=3),sms=132)
    go('16K 4 sms=40',random_inputs([(0,16384-3+i) for i in range(4)],16384,seed=4),sms=40)
    x=random_inputs([(0,2300),(0,2300)],2300,seed=14); x['weights'][0]=-x['weights'][0].abs(); x['k_scale'][100:200]=0; x['k_scale'][200:1500].neg_(); go('signs',x)
    go('integers',integer_inputs([(0,3000),(5,2100),(8,40)],3000,seed=13),exact=True)
    go('integers 9000',integer_inputs([(0,9000),(5,8100),(8,40)],9000,seed=13),exact=True)
if 'h' in which:
    for kind in HOSTILE_KINDS:
        for n in (2049,9000,20000):
            sc=hostile_scores(kind,n); rg=[(0,n),(n//3,n),(0,n-1)]
            go(f'{kind} {n}',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)[a:b] for a,b in rg],sms=3)
if 'n' in which:
    sc=np.random.default_rng(12).standard_normal(20000).astype(np.float32); sc[[3,900,19999]]=np.nan; sc[[4,2053]]=np.inf; sc[7000:9000]=np.inf
    rg=[(0,20000)]; go('nan',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)])
    sc[1000:5000]=np.nan; go('many nan',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)])
    sc=-np.abs(sc); sc[:18500]=-np.inf; go('-inf',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)])
    rg=[(-5,2100),(100,2**31-1),(-(2**31),2**31-1),(900,100),(50000,60000),(2**31-1,-(2**31)),(2**31-6000,-(2**31))]
    x=random_inputs(rg,9000,seed=5); go('cut',x)
    x=random_inputs([(10,9000),(300,2400)],9600,seed=4); x['q_index_fp8']=x['q_index_fp8'].float().abs().to(torch.float8_e4m3fn); x['weights'].abs_(); c=x['k_index_fp8'].view(torch.uint8); c[:10]=0x7e;c[9000:9300]=0x7e;c[9300:]=0x7f; go('outside',x)
    go('N=2048',random_inputs([(0,2048),(5,6)],2048,seed=4)); go('N=0',random_inputs([(0,0)],0,seed=4))
