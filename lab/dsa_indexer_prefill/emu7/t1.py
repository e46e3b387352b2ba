from emulation import run
import torch,time
from tests.oracles.dsa_indexer_prefill import *
t=time.time()
inp=random_inputs([(0,2300),(5,2200),(0,100),(100,2300),(17,2270)],2300,seed=1)
ids,f,th=run(inp)
print('failed',f,th,time.time()-t)
check(ids,inp,oracle(inp),error_bounds(inp)); print('ok')
