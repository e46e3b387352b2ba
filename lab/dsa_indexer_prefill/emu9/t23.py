import sys
sys.argv=['t2.py']
from t22 import *
from tests.prefill_study.hostile import HOSTILE
from tests.prefill_study.failures import classify, Layout
from harness.rules.prefill_inputs import tensors_with_scores
def lay(ranges):
    t=emulation.last; return classify(t,np.array([b-a for a,b in ranges]),Layout(4,8,832,132),6912)
print('=== hostile')
for name,v,q,n in (('tied_run',4096,8,20000),('good_sample',1,8,20000),('bad_sample',1,8,20000),('one_warp',1,8,40000),('infinite_run',16384,8,20000)):
    x=HOSTILE[name](n,v); sc(name,x,causal(q) if n==20000 else [(0,n-q+i) for i in range(q)],sms=2); print('   ',lay(causal(q) if n==20000 else [(0,n-q+i) for i in range(q)]))
