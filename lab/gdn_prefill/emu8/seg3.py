from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=5,3
report('[1280]',batch_of([1280],4),0)
report('[1281,0,60]',batch_of([1281,0,60],4),0)
report('[1215,10] not cut',batch_of([1215,10],4),0)
x=hard_inputs([0,1300],2); g,w=report('hard 1300',x,0); print('g=1 beta=0 exact:',torch.equal(g[1][:,3],x['state'][:,3]),flush=True)
x=batch_of([1300],5); x['A_log'].fill_(-9.); x['dt_bias'].fill_(-2.); report('slow decay 1300',x,0)
x=batch_of([700,700],6); x['cu_seqlens']=torch.zeros(3,dtype=torch.int64); report('all empty',x,0)
x=batch_of([2600],6); 
for b in ([0,2600,0,2600],[2600,1300,1300,0],[100,2600,0,1500]):
    y=dict(x); y['cu_seqlens']=torch.tensor(b); y['state']=x['state'][:1].repeat(3,1,1,1); native(y,0); print('ends',b,flush=True)
report('not handing: [70,0,200,130] 2',batch_of([70,0,200,130],3),2)
report('not handing: [70,0,200,130] 0',batch_of([70,0,200,130],3),0)
report('20 sequences',batch_of([37*i%150 for i in range(20)],6),3)
