import emulation as E, numpy as np, torch, ctypes
from tests.oracles.dsa_indexer_prefill import *
sc=np.random.default_rng(12).standard_normal(20000).astype(np.float32); sc[[3,900,19999]]=np.nan; sc[[4,2053]]=np.inf; sc[7000:9000]=np.inf; sc[1000:5000]=np.nan
orig=E.np.full
tabs=[]
def full(*a,**k):
    x=orig(*a,**k); tabs.append(x); return x
E.np.full=full
ids,f,th=E.run(inputs_with_scores(sc,[(0,20000)]))
t=tabs[1]; print(f,th, t[:2], t[2:2+8], t[2+8:2+8*21].reshape(-1,8))
