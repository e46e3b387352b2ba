from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
S.value,C.value=3,2
report('[300] 3 segs?',batch_of([300],4),0)
report('[0,200,0,330]',batch_of([0,200,0,330],4),0)
report('[460] 4 segs',batch_of([460],4),0)
report('[460,0,450,1]',batch_of([460,0,450,1],4),0)
report('[193,192,191]',batch_of([193,192,191],4),0)
report('lead, tail',random_inputs([100,100,400],7,total_seq_len=470),0)
report('no state',batch_of([330,7],1)|{'state':None,'scale':-.25},0)
x=batch_of([400],5); x['A_log'].fill_(-9.); x['dt_bias'].fill_(-2.); report('slow decay 400',x,0)
x=hard_inputs([0,400],2); g,w=report('hard 400',x,0); print('g=1 beta=0 exact:',torch.equal(g[1][:,3],x['state'][:,3]))
x=hard_inputs([0,100,500],2); x['state'][0]=float('nan'); g=native(x,0)[1]; print('nan stays',g[0].isnan().any().item(), g[1].isnan().any().item())
x=batch_of([400],7); a=native(x,0); x['v'][200,5,77]=float('nan'); b=native(x,0); k=torch.ones(8,128,dtype=torch.bool); k[5,77]=False
print('columns apart', torch.equal(a[0][:,k],b[0][:,k]), torch.equal(a[1][:,k],b[1][:,k]), b[1][0,5,77].isnan().all().item())
x=batch_of([800],22)
for bb in ([0,800,0,800],[300,800,100,700],[800,500,100,0]):
    x['cu_seqlens']=torch.tensor(bb); x['state']=x['state'][:1].repeat(3,1,1,1); native(x,0); print('overlap ends',bb,flush=True)
