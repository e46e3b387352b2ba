import ctypes, sys, numpy as np, torch, time
sys.path.insert(0,'clones/attn')
from tests.oracles.dsa_attention import *
lib=ctypes.CDLL(sys.argv[1])
def run(cluster, inp):
    T=inp['q_nope'].shape[0]; out=torch.full((T,16,512),float('nan'),dtype=torch.bfloat16); lse=torch.full((T,16),float('nan'))
    p=lambda t: ctypes.c_void_p(t.data_ptr())
    r=lib.attend(cluster,T,p(inp['q_nope']),p(inp['q_pe']),p(inp['ckv_cache']),p(inp['kpe_cache']),p(inp['sparse_indices']),p(out),p(lse),ctypes.c_float(inp['sm_scale']*1.4426950408889634),inp['ckv_cache'].shape[0]*64)
    return r,out,lse
def check(label,cluster,inp):
    t=time.time(); r,out,lse=run(cluster,inp); wo,wl=oracle(**{**inp,'sparse_indices':torch.where((inp['sparse_indices']<inp['ckv_cache'].shape[0]*64)&(inp['sparse_indices']>=0),inp['sparse_indices'],-1)})
    eo=(out.double()-wo).abs(); ok=torch.allclose(out.double(),wo,rtol=2**-7,atol=4e-3,equal_nan=True) and torch.allclose(lse.double(),wl,rtol=2e-6,atol=5e-4,equal_nan=True)
    print(label,'cluster',cluster,'OK' if ok and r==0 else 'WRONG', 'err',eo.nan_to_num(9).max().item(),(lse.double()-wl).abs().nan_to_num(0).max().item(), f'{time.time()-t:.1f}s',flush=True)
def inputs(counts,seed=0,pages=40):
    inp=random_inputs(len(counts),pages,seed)
    for t,c in enumerate(counts): inp['sparse_indices'][t,:c]=random_rows(pages,c,seed+t)
    return inp
quick=len(sys.argv)>2
for c in (16,8,2,1):
    check('counts',c,inputs([0,1,2,15,16,17,33,63,64,65,66,80]))
    check('counts2',c,inputs([100,129,337,1023,1024,1025,1089,2047,2048] if not quick else [337,2048]))
    inp=inputs([0]*6,seed=3); g=torch.Generator().manual_seed(1); si=inp['sparse_indices']
    for t,frac in enumerate((0.5,0.02,0.9)):
        m=torch.rand(2048,generator=g)<frac; si[t,m]=random_rows(40,int(m.sum()),50+t)
    si[3,2047]=5; si[4,64:70]=7; si[5,1500:1600]=random_rows(40,100,9); si[0,3]=-5; si[0,4]=40*64; si[0,5]=2**31-1
    check('holes',c,inp)
