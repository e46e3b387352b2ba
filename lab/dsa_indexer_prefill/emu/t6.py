import emulation as E, numpy as np, torch, ctypes,sys
from tests.oracles.dsa_indexer_prefill import *
from harness.ranges import row_ranges
orig=E.np.full
tabs=[]
def full(*a,**k):
    x=orig(*a,**k); tabs.append(x); return x
E.np.full=full
Q,N,sms=7,16023,132
st,en=row_ranges({'num_queries':Q,'num_keys':N,'ragged_ranges':1})
print(list(zip(st,en)))
inp=random_inputs(list(zip(st.tolist(),en.tolist())),N,seed=3)
ids,f,th=E.run(inp,sms=sms,most_candidates=int(sys.argv[1]))
t=tabs[1]; b=-(-Q//4); sh=t[:2*b].reshape(-1,2); cn=t[2*b:2*b+8*(Q+528)].reshape(-1,8)
fl=t[2*b+8*(Q+528)+Q:]
print('failed',fl[:1+fl[0]],'shares',sh,th)
for r in range(Q):
    if en[r]-st[r]<=2048: continue
    first,p=sh[r//4]
    c=np.stack([cn[r if k==0 else Q+4*(first+k)+r%4] for k in range(p)])
    print(r,en[r]-st[r],c.sum(),c.max(), c.min())
