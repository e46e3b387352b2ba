import sys
sys.argv=['t2.py']
from t2 import *
import emulation
def sc(name,x,ranges,**kw):
    x=np.asarray(x,np.float32); go(name,inputs_with_scores(x,ranges),own=[torch.as_tensor(x)[a:b] for a,b in ranges],**kw)
    Q=len(ranges); t=emulation.last; nb=-(-Q//4); areas=Q+528; o=3*nb+areas*8+Q; print('   ties told',t[o:o+Q][:6].tolist(),'shares',t[:3*nb].reshape(-1,3)[:3].tolist())
rng=np.random.default_rng(3); n=20000
base=rng.standard_normal(n)
def run(at,size,v=100.): y=base.copy(); y[at:at+size]=v; return y
def causal(q): return [(0,n-q+1+i) for i in range(q)]
for q,sms in ((1,132),(8,24),(9,12),(64,10)):
    sc(f'run 4096, {q}',run(n//3,4096),causal(q),sms=sms)
    sc(f'constant {q}',np.full(n,-0.25),causal(q),sms=sms,most_candidates=20480)
sc('run at block end',run(n-4096,4096),causal(8),sms=24)
sc('run across pieces',run(3000,9000),causal(8),sms=24)
sc('constant -0.0',np.full(n,-0.0),causal(8),sms=12)
sc('constant +0.0',np.full(n,0.0),causal(8),sms=12)
sc('zeros and 1000 above',np.where(rng.permutation(n)<1000,1.,-0.0),causal(8),sms=12)
sc('constant -inf',np.full(n,-np.inf),causal(8),sms=12)
sc('constant inf (repair)',np.full(n,np.inf),causal(4),sms=6)
sc('constant nan',np.full(n,np.nan),causal(8),sms=12)
y=base.copy(); y[rng.permutation(n)[:5000]]=np.nan; sc('5000 nan',y,causal(8),sms=12)
y=base.copy(); y[rng.permutation(n)[:5000]]=np.inf; y[rng.permutation(n)[:1000]]=np.nan; sc('5000 inf 1000 nan',y,causal(4),sms=6)
k=np.arange(n); y=base.copy(); y[(k//16)%9==0]=100; sc('16 of 144',y,causal(8),sms=12)
sc('16 levels',rng.integers(0,16,n),causal(8),sms=12)
sc('2000 above',np.where(rng.permutation(n)<2000,2.,1.),causal(8),sms=12)
# a NaN weight beside normal queries
x=random_inputs([(0,9000+i) for i in range(12)],9100,seed=7); x['weights'][3,5]=float('nan'); x['weights'][9]=float('nan'); go('nan weights',x)
# rows of one warp alone
t=k//128; y=base.copy(); y[(k//16)%8==(t+3)%8]+=50; sc('one warp (may fail)',y,causal(4),sms=2)
