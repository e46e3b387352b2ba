import sys,ctypes,re,numpy as np,torch
sys.path.insert(0,'clones/longctx')
sub=sys.argv[1]
text=open('./lab/dsa_indexer_prefill/lab.py').read().replace('"cuda"','"cpu"').replace('"cuda:0"','"cpu"')
sys.argv=['lab.py',sub,'clones/longctx','clones/longctx-lab/vb']
torch.cuda.synchronize=lambda *a:None; torch.cuda.empty_cache=lambda:None; torch.cuda.init=lambda:None
ns={'__name__':'lab'}
exec(compile(text,'lab.py','exec'),ns)
lib=ctypes.CDLL('clones/longctx-lab/emu/libd.so')
state={}
class M:
    def set_debug(self,x): state['d']=x
    def select_topk(self,q,k,s,w,st,en,out,table,area,most,mc):
        p=lambda t:ctypes.c_void_p(t.data_ptr())
        f=ctypes.c_int(); th=np.zeros(len(st)+4,np.float32)
        Q,N=len(st),len(s); d=state.get('d')
        if d is None or d.shape!=(Q,N): d=torch.zeros(Q,N)
        assert Q<=most
        lib.emu_run(p(q),p(k),p(s),p(w),p(st),p(en),p(out),Q,N,11,2,mc,p(table),p(area),ctypes.byref(f),ctypes.c_void_p(th.ctypes.data),None,p(d))
ns['module']=lambda v='base':M()
ns['timed']=lambda c,reps=3:0.0
O=ns['O']
if sub=='layout': ns['layout']()
if sub=='probes': ns['probes']()
if sub=='check':
    import tests.packed
    ns['prove']("5 x 2300", O.random_inputs([(0, 2300), (5, 2200), (0, 100), (100, 2300), (17, 2270)], 2300, seed=1),packed=False)
    ns['prove']("ragged",ns['axes_inputs']({"num_queries": 17, "num_keys": 9000, "ragged_ranges": 1}),packed=False)
    ns['prove']("causal",ns['causal'](5,20000),packed=False)
if sub=='hostile':
    for kind in O.HOSTILE_KINDS:
        v,c=ns['known'](kind,O.hostile_scores(kind,9000),[(0,9000)]*3+[(3000,9000)]); print(kind,v,c.failures())
