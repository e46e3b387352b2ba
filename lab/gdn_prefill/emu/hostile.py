from drive import *
from torch.nn.functional import normalize
report('hard 300 x1',hard_inputs([0,300],2),1)
report('hard 100 x4',hard_inputs([0,100,200,300,400],2),2)
x=batch_of([700],5); x['A_log'].fill_(-9.); x['dt_bias'].fill_(-2.); report('slow decay 700',x,1)
x=batch_of([100,64],3); x['k']*=2; report('norm 2',x,1)
x=random_inputs([100,100,400],7,total_seq_len=470); report('lead 100, tail 70',x,1)
x=batch_of([0,1,2,0,31,63,64,65,129,0],3); x['state'][0]=float('nan'); report('awkward',x,2)
x=batch_of([300,7],1)|{'state':None,'scale':-.25}; report('no state',x,2)
x=batch_of([1]*20,1); report('ones',x,2)
x=hard_inputs([0,80],2); report('hard walk',x,0)
x=batch_of([130],9); x['cu_seqlens']=torch.tensor([-5,200]); y=native(x,1); x['cu_seqlens']=torch.tensor([0,130]); w=oracle(**x); print('clipped',count_wrong(y[0],w[0]),count_wrong(y[1],w[1]))
x=batch_of([70,60],9); x['cu_seqlens']=torch.tensor([100,20,130]); y=native(x,1); print('descending runs')
