import sys; sys.argv=['t2.py']; sys.path.insert(0,'clones/long4-emu/bg')
from t2 import *
from harness.rules.prefill_inputs import draw_inputs
names=("q_index_fp8","k_index_fp8","k_scale","weights","row_starts","row_ends")
for seed,(Q,N) in enumerate([(4,12000),(6,9000),(4,20000)]):
    torch.manual_seed(seed); x=dict(zip(names,draw_inputs({"num_queries":Q,"num_keys":N,"outlier_keys":5},"cpu")))
    go(f'outliers {Q} x {N}',x,sms=3)
    x=dense_integer_inputs([(0,N-Q+1+i) for i in range(Q)],N,seed=seed); go(f'dense {Q} x {N}',x,exact=True,sms=3)
