import sys
sys.argv=['t2.py']
from t2 import *
go('2300',random_inputs([(0,2300),(5,2200),(0,100),(100,2300),(17,2270)],2300,seed=1),sms=2)
go('9000',random_inputs([(0,9000),(5,8999),(3,8000)],9000,seed=2),sms=3)
for kind in ('equal','a run','all magnitudes'):
    n=9000; sc=hostile_scores(kind,n); rg=[(0,n),(n//3,n),(0,n-1),(5,2053),(9,2058)]
    go(f'{kind} {n}',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)[a:b] for a,b in rg],sms=3)
    go(f'{kind} {n} repair',inputs_with_scores(sc,rg),own=[torch.as_tensor(sc)[a:b] for a,b in rg],most_candidates=2048,repair_ctas=1,sms=3)
