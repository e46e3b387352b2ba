import sys
sys.argv=['t2.py']
from t2 import *
kw=dict(most_candidates=2048,repair_ctas=3,sms=7)
go('12000 ragged',random_inputs([(0,12000),(5000,11999),(7,2056),(7,2055),(11000,12000),(3,3),(1,7000)]*4,12000,seed=3),**kw)
for kind in HOSTILE_KINDS:
    n=9000; sc=hostile_scores(kind,n); rg=[(0,n),(n//3,n),(0,n-1),(5,2053),(9,2058)]*3
    go(f'{kind} {n}',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)[a:b] for a,b in rg],**kw)
sc=np.random.default_rng(12).standard_normal(20000).astype(np.float32); sc[1000:5000]=np.nan
go('nan',inputs_with_scores(sc,[(0,20000)]),own=[torch.as_tensor(sc)],**kw)
