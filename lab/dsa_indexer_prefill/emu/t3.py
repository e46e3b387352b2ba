from emulation import run
from t2 import go
from tests.oracles.dsa_indexer_prefill import *
import numpy as np, sys
sys.path.insert(0,'clones/longctx')
from harness.ranges import row_ranges
rng=np.random.default_rng(int(sys.argv[1]) if len(sys.argv)>1 else 0)
for i in range(6):
    Q=int(rng.integers(1,60)); N=int(rng.integers(2049,22000)); sms=int(rng.choice([1,3,13,60,132])); mc=int(rng.choice([6912,20480]))
    st,en=row_ranges({'num_queries':Q,'num_keys':N,'ragged_ranges':1})
    go(f'Q{Q} N{N} sms{sms}',random_inputs(list(zip(st.tolist(),en.tolist())),N,seed=i),sms=sms,most_candidates=mc,repair_ctas=int(rng.integers(1,5)))
