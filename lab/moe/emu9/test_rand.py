import sys; sys.argv=[sys.argv[0],'none']
from test_tiles import *
for seed,T,ctas in ((21,150,6),):
    check(f'rand {T}',None,ctas,seed,offset=0,logits=torch.randn(T,256,generator=torch.Generator().manual_seed(seed)))
