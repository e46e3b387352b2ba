import os, ctypes, sys, torch, time
sys.path.insert(0,'clones/next-gdn')
from tests.oracles.gdn_prefill import *
torch.set_num_threads(1)
L=ctypes.CDLL(os.environ.get('EMU','/tmp/ng/emu')+'/'+os.environ.get('SO','emu.so')); L.scratch_bytes.restype=L.faded.restype=ctypes.c_long
import hashlib
def bits(*x):
    h=hashlib.sha1()
    for t in x: h.update(t.contiguous().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:12]
def equal_keys(lengths,seed,norm=2.0):
    x=batch_of(lengths,seed); x['k'][:,0]=(norm*x['k'][:1,0].float()).bfloat16(); x['k'][:,2]=(norm*x['k'][:1,2].float()).bfloat16(); x['b'][:]=120.0; x['A_log'][:]=1.0; return x
def native(inputs, groups):
    out,ns=empty_outputs(inputs); out.fill_(float('nan')); ns.fill_(float('nan'))
    T,N=inputs['q'].shape[0],ns.shape[0]
    scratch=torch.full((L.scratch_bytes(T,N)//2+64,),float('nan'),dtype=torch.float16)
    t=[inputs[n] for n in ('q','k','v','state','A_log','a','dt_bias','b','cu_seqlens')]+[out,ns,scratch]
    p=(ctypes.c_void_p*12)(*[x.data_ptr() if x is not None else None for x in t])
    s=inputs['scale'] or HEAD_SIZE**-.5
    L.prefill(p,ctypes.c_float(s),T,N,groups)
    return out,ns
def report(name,inputs,groups):
    t=time.time(); got=native(inputs,groups); want=oracle(**inputs)
    print(f'{name:34s} groups {groups}: output wrong {count_wrong(got[0],want[0])} worst {(got[0].double()-want[0]).abs().max() if want[0].numel() else 0:.1e}, state wrong {count_wrong(got[1],want[1])} worst {(got[1].double()-want[1]).abs().max() if want[1].numel() else 0:.1e}  {time.time()-t:.1f}s bits {bits(*got)} faded {L.faded()}',flush=True)
    return got,want
if __name__=='__main__':
    report('walk 5,0,9',batch_of([5,0,9],1),-1)
    report('[64]',batch_of([64],2),0)
    report('[70]',batch_of([70],3),1)
    report('[70,0,1,130]',batch_of([70,0,1,130],3),2)
    report('[70,0,1,130] split',batch_of([70,0,1,130],3),0)
    report('[70,0,200,130] split over 2',batch_of([70,0,200,130],3),2)
