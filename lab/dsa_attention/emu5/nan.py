exec(open('check.py').read().split("quick=")[0])
inp=inputs([200,100,33],seed=8); used=torch.zeros(40*64,dtype=torch.bool); r_=inp['sparse_indices'].flatten(); used[r_[r_>=0].long()]=True
clean={k:(v.clone() if hasattr(v,'clone') else v) for k,v in inp.items()}
for bad in (float('nan'),float('inf')):
    for n in ('ckv_cache','kpe_cache'):
        inp[n]=clean[n].clone(); inp[n].view(40*64,-1)[~used]=bad
    for c in (16,8,2,1):
        a=run(c,inp); b=run(c,clean); print('poison',bad,c,torch.equal(a[1],b[1]) and torch.equal(a[2],b[2]),flush=True)
inp={k:(v.clone() if hasattr(v,'clone') else v) for k,v in clean.items()}
i=inp['sparse_indices']; i[1][i[1]==i[0,150]]=int(i[0,0]); i[2][i[2]==i[0,150]]=int(i[0,0])
before={c:run(c,inp) for c in (16,8,2,1)}
inp['ckv_cache'].view(40*64,-1)[i[0,150].long(),3]=float('nan')
for c in (16,8,2,1):
    r,o,l=run(c,inp); print('chosen nan',c,torch.isnan(o[0]).all().item(),torch.isnan(l[0]).all().item(),torch.equal(o[1:],before[c][1][1:]))
