import sys
sys.argv=['t2.py']
from t2 import *
go('26000',random_inputs([(0,26000),(5,24999),(0,9000)],26000,seed=2),sms=7)
go('60000',random_inputs([(0,60000),(5,54999)],60000,seed=2),sms=7)
for kind in HOSTILE_KINDS:
    n=26000
    sc=hostile_scores(kind,n); rg=[(0,n),(n//30,n),(0,n-1)]
    go(f'{kind} {n}',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)[a:b] for a,b in rg],sms=3)
sc=np.random.default_rng(12).standard_normal(30000).astype(np.float32); sc[[3,900,19999]]=np.nan; sc[[4,2053]]=np.inf; sc[7000:9000]=np.inf
rg=[(0,30000)]; go('nan',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)])
sc[1000:5000]=np.nan; go('many nan',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)])
