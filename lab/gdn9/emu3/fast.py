# fast.py NAME ORDERS... : bits of one input in several orders (0: fixed), in a build of its own
import os,sys
os.environ['NO_RC']='1'
from drive import *
S=ctypes.c_int.in_dll(L,'solve_ctas'); C=ctypes.c_int.in_dll(L,'scan_ctas')
CASES={'pair':(1,2,lambda: batch_of([300,70],4),0),
 'mixed':(1,2,lambda: equal_keys([150,64,70,1,0,200],4),2),
 'long':(1,3,lambda: batch_of([900],4),0),
 'many':(2,3,lambda: batch_of([(37*i+11)%110 for i in range(24)],6),1),

 'cutlong':(1,3,lambda: batch_of([1500],4),0),
 'cuttwo':(1,3,lambda: batch_of([1100,0,330],5),0),
 'halves':(1,2,lambda: batch_of([300,10,500,0,64,200,130,700,1,90],8),2),
 'flip':(1,2,lambda: flipping(),0)}
def flipping():
    # second pass in some chunks of a head only: equal keys of norm 2 in every other 64 tokens
    x=batch_of([520,260],9); even=(torch.arange(780)//64%2==0)
    x['k'][even,1]=(2*x['k'][:1,1].float()).bfloat16(); x['b'][:]=120.0; x['A_log'][:]=1.0; return x
for n in ('starvations','ambiguous'): getattr(L,n).restype=ctypes.c_long
if __name__=='__main__':
    s,c,x,g=CASES[sys.argv[1]]; S.value,C.value=s,c; x=x(); want=None
    for o in sys.argv[2:]:
        # 0 fixed; 7 an order; 7s with stalls; 7w, 7t a warp, a thread starved; 7v violent stalls; a d behind: copies land later
        kind=o.lstrip('0123456789')
        for n in ('ORDER','STALLS','STARVE','STALL_MOST','STALL_EVERY','DELAYS'): os.environ.pop(n,None)
        if o!='0': os.environ['ORDER']=o[:len(o)-len(kind)]
        if 's' in kind or 'v' in kind: os.environ['STALLS']='1'
        if 'v' in kind: os.environ['STALL_MOST']='6000'; os.environ['STALL_EVERY']='4000'
        if 'w' in kind: os.environ['STARVE']='1'
        if 't' in kind: os.environ['STARVE']='2'
        if 'd' in kind: os.environ['DELAYS']='120'
        t=time.time(); got=native(x,g); b=bits(*got)
        if want is None: w=oracle(**x); want=b; print(sys.argv[1],'wrong',count_wrong(got[0],w[0]),count_wrong(got[1],w[1]))
        print(sys.argv[1],'order',o,'bits',b,'SAME' if b==want else 'OTHER','second passes',L.faded()/256,'starved',L.starvations(),'ambiguous',L.ambiguous(),f'{time.time()-t:.1f}s',flush=True)
