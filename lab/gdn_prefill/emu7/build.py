import os,sys,tempfile,json
sys.path.insert(0,'clones/prefill7'); os.chdir('clones/prefill7')
os.environ['TVM_FFI_CACHE_DIR']='clones/prefill7-lab/cache'
from tests.packed import build
k=sys.modules[build('gdn_prefill')._callable.__module__]
m=sys.modules[k.run_native.__module__]
mod=m.load_native('prefill.cu',(9,0))
print(mod.count_scratch(64,1), mod.count_scratch(8192,57)/1e6)
import torch
from tests.oracles.gdn_prefill import *
x=batch_of([5],1); out=empty_outputs(x)
for st in (x['state'],None):
    try: mod.prefill(x['q'],x['k'],x['v'],st,x['A_log'],x['a'],x['dt_bias'],x['b'],x['cu_seqlens'],0.1,*out,torch.empty(0,dtype=torch.uint8),0)
    except Exception as e: print(type(e),str(e)[:300])
