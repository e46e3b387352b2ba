"""Model of the filter's candidates: pieces, segments, asking. Interleavings of CTAs at random."""
import numpy as np, random, sys
TILE,ROWS,SEG,CAP,TOPK,WANTED,WHOLE=128,16,8,832,2048,3840,5120
F,C,STEP=640,8,64
def sampled(stretch,n):
    s=np.arange(-(-n//stretch),dtype=np.uint32); r=(s*np.uint32(2654435761))>>np.uint32(16)
    k=s.astype(np.int64)*stretch+((r.astype(np.uint64)*stretch)>>np.uint64(16)).astype(np.int64)
    return k[k<n]
def threshold(x):
    n=len(x); sm=np.sort(x[sampled(64 if n<=16384 else 48,n)])[::-1]
    need=min(len(sm)*WANTED//n+1,len(sm)); return sm[need-1]
def line(Q,T,ctas=132):
    """pieces (first, last tile) of each block, causal whole ranges"""
    blocks=-(-Q//4); joint=-(-blocks//2)
    team=2 if 2*joint*T<=blocks*T+blocks*T//32 else 1
    items=joint if team==2 else blocks; total=items*T; shares=max(min(total,ctas//team),1)
    cuts=[total*i//shares for i in range(shares+1)]
    out=[]
    for b in range(items):
        p=[(max(a,b*T)-b*T,min(e,b*T+T)-b*T) for a,e in zip(cuts,cuts[1:]) if max(a,b*T)<min(e,b*T+T)]
        out.append(p)
    return team,out
def counts(mask,T):
    """[T,8]: keys of a warp in each tile"""
    m=np.zeros(T*TILE,bool); m[:len(mask)]=mask
    g=m.reshape(T,8,ROWS).sum(2); o=np.empty((T,8),int)
    for t in range(T): o[t]=np.roll(g[t],-t)[:8] if False else [g[t][(w+t)%8] for w in range(8)]
    return o
def sim(x,pieces,mode,rng,length=None,t=None):
    n=len(x); T=-(-n//TILE)
    if t is None: t=threshold(x) if n>WHOLE else -np.inf
    ab,ti=counts(x>t,T),counts(x==t,T)
    known=[0]; asks=0
    W=[]  # per warp: piece, tile, place, told, limit, raised
    for pi,(a,e) in enumerate(pieces):
        for w in range(8): W.append([pi,a,e,w,0,0,0,False])
    def step(v):
        nonlocal asks
        tt=0 if v[7] else ti[v[1],v[3]]; v[4]+=ab[v[1],v[3]]+tt; v[1]+=1
        if tt:
            v[5]+=tt
            if v[5]>4:
                asks+=1; known[0]+=v[4]-v[6]; v[6]=v[4]
                if known[0]>=TOPK: v[5]=-1<<30; v[7]=True
                else: v[5]=0
    groups=[[v for v in W if v[0]==p] for p in range(len(pieces))]
    def run_group(g):  # one advance of a group: a random warp within the ring of 6 tiles
        live=[v for v in g if v[1]<v[2]]
        if not live: return False
        low=min(v[1] for v in live); live=[v for v in live if v[1]<low+6]
        step(rng.choice(live)); return True
    if mode=='sequential':
        for g in (groups if rng.random()<.5 else groups[::-1]):
            while run_group(g): pass
    elif mode=='lockstep':
        while any([ [step(v) for v in g if v[1]<v[2]] for g in groups]): pass
    else:
        live=list(groups); speed=[rng.random()**2+.01 for _ in groups] if mode=='uneven' else [1]*len(groups)
        delay=[rng.randrange(3) for _ in groups]
        act=list(range(len(groups)))
        while act:
            i=rng.choices(act,[speed[j] for j in act])[0]
            for _ in range(8):
                if not run_group(groups[i]): act.remove(i); break
    places=[v[4] for v in W]; total=sum(places); allt=int((ab+ti).sum())
    return dict(total=total,worst=max(places),all=allt,asks=asks,known=known[0])
if __name__=='__main__':
    rng=random.Random(int(sys.argv[1]) if len(sys.argv)>1 else 0); nr=np.random.default_rng(5)
    for Q in (1,4,5,8,12,64,128,132,133,136,140,264,512,4096):
        for n in (5121,8192,16384,65536,131072,163840,1<<20):
            if Q*n>4096*163840: continue
            T=-(-n//TILE); team,blocks=line(Q,T); most=24576 if Q<=132 else 6912
            # blocks with distinct shapes
            shapes={tuple(p) for p in blocks}; shapes=sorted(shapes,key=len)[-2:]+[sorted(shapes,key=len)[0]]
            base=nr.standard_normal(n)
            cases={'constant':np.ones(n)}
            k=np.arange(n)
            for run in (4096,16384): y=base.copy(); y[n//3:n//3+run]=100; cases[f'run {run}']=y
            y=base.copy(); y[(k//16)%9==0]=100; cases['16 of 144']=y
            cases['10 %']=np.where(nr.random(n)<.1,1.,0.)
            y=base.copy(); y[nr.permutation(n)[:3000]]=50; y[n//2:n//2+3000]=50; cases['mixed']=y
            y=np.ones(n); y[nr.permutation(n)[:2000]]=2+nr.random(2000); cases['2000 above']=y; y=np.ones(n); y[nr.permutation(n)[:min(3300,n//2)]]=2; cases['3300 above']=y
            cases['16 levels']=nr.integers(0,16,n)*1.; cases['integers']=np.round(base*40)
            for name,x in cases.items():
                res=[]
                for p in shapes:
                    if n==1<<20 and name!='constant': continue
                    for mode in ('sequential','lockstep','random','uneven'):
                        if len(p)*8*T>3e5 and mode in('random','uneven') : continue
                        r=sim(x,p,mode,rng); ok=r['total']>=min(TOPK,r['all']) and r['total']<=most and r['worst']<=CAP
                        res.append((ok,r['total'],r['worst'],r['asks']))
                if res:
                    bad=[r for r in res if not r[0]]
                    print(Q,n,'team',team,'pieces',[len(p) for p in shapes],name,'bad',len(bad),'of',len(res),'max total',max(r[1] for r in res),'max segment',max(r[2] for r in res),'asks',max(r[3] for r in res),flush=True)
