# gf.py CASE ORDERS... : bits of one input in several orders against the fp64 oracle. Env: MUTANT, DROP (1), SOLVE, SCAN (CTAs), NOSTATE, REUSE
# order: N[letters]: s stalls, v violent stalls, w/t a warp/thread starved, d late copies, p CTAs at changing paces, b late bulk stores that read at any time (else at the last moment), q solve first
import os, ctypes, sys, time, hashlib
os.environ.setdefault('OMP_NUM_THREADS','1')
import torch
sys.path.insert(0,'REPO')
from tests.oracles.gdn_prefill import *
torch.set_num_threads(1)
L=ctypes.CDLL(os.environ.get('EMU','/tmp/gf/emu')+'/emu.so'); COUNTS=('starvations','ambiguous','faded','gave_up','dropped','dropped_twice','passes','bad')
for n in ('scratch_bytes',)+COUNTS: getattr(L,n).restype=ctypes.c_long
L.scratch_bytes.argtypes=[ctypes.c_long]*2
def bits(*x):
    h=hashlib.sha1()
    for t in x: h.update(t.contiguous().view(torch.uint8).numpy().tobytes())
    return h.hexdigest()[:12]
def equal_keys(lengths,seed,norm=2.0):
    x=batch_of(lengths,seed); x['k'][:,0]=(norm*x['k'][:1,0].float()).bfloat16(); x['k'][:,2]=(norm*x['k'][:1,2].float()).bfloat16(); x['b'][:]=120.0; x['A_log'][:]=1.0; return x
def flipping(lengths,seed=9):
    x=batch_of(lengths,seed); T=sum(lengths); even=(torch.arange(T)//64%2==0)
    x['k'][even,1]=(2*x['k'][:1,1].float()).bfloat16(); x['b'][:]=120.0; x['A_log'][:]=1.0; return x
CUT3=(4,6,8,2); CUT2=(4,100,200,2); NONE=(20,48,160,2)
# solve CTAs, scan CTAs, input, most_whole, cuts
CASES={
 'whole':(2,2,lambda: batch_of([130,0,64,1,20,0,0,65,300,128,3,257,0,40],21),8,(20,48,160,8)),
 'whole9':(1,1,lambda: batch_of([70,0,1,330,64,0,5,129,0,0,64],22),8,(20,48,160,8)),
 'gaps':(1,2,lambda: random_inputs([7,7,80,80,81,290,290,300,310,320,330],23,total_seq_len=341),6,(20,48,160,8)),
 'halves':(2,2,lambda: batch_of([300,10,200,0,64,1,90,130,0,5],8),2,(20,48,160,8)),
 'halves1':(1,1,lambda: batch_of([200,10,330,0,64,1,90,30,0,5],9),2,(20,48,160,8)),
 'halvesN':(1,3,lambda: batch_of([200,10,330,0,64,1,90,30,0,5],9),1,(20,48,160,8)),
 'hand':(2,3,lambda: batch_of([330,70,0,260],10),0,NONE),
 'hand1':(1,1,lambda: batch_of([520],11),0,NONE),
 'cut2':(1,3,lambda: batch_of([390,130,0,64],12),0,CUT2),
 'cut3':(2,3,lambda: batch_of([640,200],13),0,CUT3),
 'cut3b':(1,2,lambda: batch_of([100,0,517,130,3],14),0,CUT3),
 'cut4':(1,3,lambda: batch_of([800],15),0,CUT3),
 'many385':(2,2,lambda: batch_of([(0 if i%37 else 1+(i*29)%140) for i in range(390)],16),1,(20,48,160,8)),
 'flip':(2,2,lambda: flipping([260,70,0,130,64,1,30,20,200]),6,(20,48,160,8)),
 'fliphand':(1,2,lambda: flipping([390,130]),0,NONE),
 'short':(1,1,lambda: batch_of([5,64,10,1,0,40,63,64,0,2],31),8,(20,48,160,8)),
 'short2':(1,2,lambda: batch_of([5,64,100,1,0,128,63,64,0,2,90],32),8,(20,48,160,8)),
 'shorthalf':(1,2,lambda: batch_of([64,30,1,70,0,5,64,20,10,3],33),0,(20,48,160,8)),
 'handshort':(1,1,lambda: batch_of([128,128,128],34),0,NONE),
 'handshort2':(1,2,lambda: batch_of([128,128,128,0],35),0,(20,48,160,1)),
 'cutshort':(1,2,lambda: batch_of([250,64],36),0,(2,3,8,2)),
 'mixed':(1,2,lambda: equal_keys([150,64,70,1,0,200],4),2,(20,48,160,8)),
}
def expected_drops(name,x):
    cu=x['cu_seqlens'].tolist(); lens=[-(-(b-a)//64) for a,b in zip(cu,cu[1:])]; s,c,_,mw,cuts=CASES[name]; T=x['q'].shape[0]; N=len(lens)
    second,third,fourth,long_=cuts
    hands=mw==0 and N<=8 and T>=N*long_*64
    if not hands: return 8*194*sum(l for l in lens if not (l>mw and N<=384))
    total=0 if os.environ.get('HANDED_DROPPED','0')=='0' else 8*(194+384)*sum(lens); most=0 if T<=(second-1)*64 or N>5 else 3 if N==1 else 2
    ch=max(lens); nxt=sorted(lens)[-2] if N>1 else 0
    later=0 if 2*nxt>ch else min((ch>=second)+(ch>=third)+(ch>=fourth),most)
    if later:
        rounds=sum(lens)*4//(2*SC[0]); ahead=3+14*max(rounds-1,0); step=(ch-min(ahead,ch//2))//(later+1); total+=8*384*later*step*(total>0)
    return total,later
SC=[0,0]
def native(x,groups,drop):
    out,ns=empty_outputs(x); out.fill_(float('nan')); ns.fill_(float('nan'))
    T,N=x['q'].shape[0],ns.shape[0]
    size=L.scratch_bytes(T,N); raw=torch.full((size+512,),255,dtype=torch.uint8); off=-raw.data_ptr()%128; scratch=raw[off:off+size]
    t=[x[n] for n in ('q','k','v','state','A_log','a','dt_bias','b','cu_seqlens')]+[out,ns,scratch]
    p=(ctypes.c_void_p*12)(*[y.data_ptr() if y is not None else None for y in t])
    L.prefill(p,ctypes.c_float(x['scale'] or HEAD_SIZE**-.5),T,N,groups,drop)
    assert (raw[:off]==255).all() and (raw[off+size:]==255).all(),'scratch overrun'
    return out,ns
if __name__=='__main__':
    name=sys.argv[1]; s,c,x,g,cut=CASES[name]; SC[:]=int(os.environ.get('SOLVE',s)),int(os.environ.get('SCAN',c))
    ctypes.c_int.in_dll(L,'solve_ctas').value,ctypes.c_int.in_dll(L,'scan_ctas').value=SC; L.set_cut(*cut); x=x()
    if os.environ.get('NOSTATE'): x['state']=None
    drop=int(os.environ.get('DROP','1')); mutant=int(os.environ.get('MUTANT','0')); L.set_mutant(mutant)
    label=f"{name} state {x['state'] is not None} drop {drop} ctas {SC[0]}+{SC[1]}"+(f' MUTANT {mutant}' if mutant else '')
    want=None; w=oracle(**x); bitsfile=f"/tmp/gf/bits_{name}_{x['state'] is not None}"
    for o in sys.argv[2:]:
        kind=o.lstrip('0123456789')
        for n in ('ORDER','STALLS','STARVE','STALL_MOST','STALL_EVERY','DELAYS','PACE','SEQ'): os.environ.pop(n,None)
        if o!='0': os.environ['ORDER']=o[:len(o)-len(kind)]
        if 's' in kind or 'v' in kind: os.environ['STALLS']='1'
        if 'v' in kind: os.environ['STALL_MOST']='6000'; os.environ['STALL_EVERY']='4000'
        if 'w' in kind: os.environ['STARVE']='1'
        if 't' in kind: os.environ['STARVE']='2'
        if 'd' in kind: os.environ['DELAYS']='120'
        if 'p' in kind: os.environ['PACE']='1'
        if 'q' in kind: os.environ['SEQ']='1'
        L.set_bulk(1 if 'b' in kind else 2, 300 if 'l' in kind else 60)
        t=time.time(); got=native(x,g,drop); b=bits(*got)
        if want is None:
            want=open(bitsfile).read() if os.path.exists(bitsfile) else b
            if not mutant and not os.path.exists(bitsfile): open(bitsfile,'w').write(b)
        e=expected_drops(name,x); n={k:getattr(L,k)() for k in COUNTS}
        wrong=count_wrong(got[0],w[0]),count_wrong(got[1],w[1]); worst=[f'{(a.double()-b_).abs().max():.0e}' for a,b_ in zip(got,w)]
        dropped=n['dropped']; ed=(e if isinstance(e,int) else e[0])*drop
        ok=b==want and wrong==(0,0) and n['ambiguous']==0 and n['bad']==0 and dropped==ed and n['dropped_twice']==0
        print(label,'order',o,'OK' if ok else 'FAIL','bits',b,'SAME' if b==want else 'OTHER','wrong',wrong,'worst',*worst,'faded',n['faded']/256,'starved',n['starvations'],'ambiguous',n['ambiguous'],'early counts',n['bad'],'drops',dropped,'of',e,'gave up',n['gave_up'],'passes',n['passes'],f'{time.time()-t:.1f}s',flush=True)
