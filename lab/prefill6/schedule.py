"""A model of solve and scan at 8192 tokens: who works when. Rates: scan bytes of all SMs together at most RATE, of one at most ONE."""
import heapq
L={20:[2231,1029,896,839,610,374,304,299,246,207,191,179,132,125,116,110,106,83,71,44],
32:[961,691,664,653,602,561,529,410,388,347,285,259,229,200,199,152,137,95,94,89,84,75,71,61,61,57,54,49,46,40,33,16],
57:[992,861,418,325,316,296,284,264,246,244,232,224,216,204,204,179,153,131,122,112,110,107,100,96,92,90,86,82,82,81,80,80,78,77,74,73,71,66,61,60,57,50,44,42,38,35,30,30,30,29,26,25,23,21,16,16,11]}
def run(n,new,whole,RATE,ONE=66e3,COLD=15.,PAIR=12.,SINGLE=10.,scanned=16,dt=.05):
    ch=[-(-x//64) for x in L[n]]
    C=132-scanned
    # solve: order of tasks (seq,pos,head)
    if new: order=[(s,p) for s in range(n) for p in range(ch[s])]
    else: order=[(s,p) for p in range(max(ch)) for s in range(n) if ch[s]>p]
    tasks=[(s,p,h) for s,p in order for h in range(4)]
    T=len(tasks); own={}
    for c in range(C):
        for t in (0,1):
            k=c if t==0 else 2*C-1-c; l=[]
            first=True; k0=k
            while k<T:
                l.append(k)
                k=(2*C+2*c+t if first else k+2*C) if new else k+2*C
                first=False
            own[c,t]=l
    done={}; end=[0]*C
    for c in range(C):
        n0,n1=len(own[c,0]),len(own[c,1]); t0=0
        for r in range(max(n0,n1)):
            both=r<n0 and r<n1
            d=(COLD if both else 11.) if r==0 else (PAIR if both else SINGLE)
            t0+=d
            for t in (0,1):
                if r<len(own[c,t]): done[tasks[own[c,t][r]]]=t0
        end[c]=t0
    ready={}
    for (s,p,h),t in done.items(): ready[s,p,h]=t
    split=[s for s in range(n) if ch[s]>whole]
    units=[(s,h,1) for s in split for h in range(8) for _ in (0,1)]+[(s,h,2) for s in range(n) if s not in split for h in range(8)]
    start=sorted([8.]*scanned+end)
    nxt=0; stat={}
    if not new:
        for c in range(132):
            stat[c]=[u for k in range(8) for u in [k*132+(c if k%2==0 else 131-c)] if u<len(units)]
    ctas=[]
    for c in range(132): ctas.append(dict(t=start[c],unit=None,list=list(stat.get(c,[])),c=c))
    t=8.; last=0; busy=0
    while True:
        active=[]; left=False
        for x in ctas:
            if t<x['t']: left=True; continue
            if x['unit'] is None:
                if new:
                    if nxt<len(units): x['unit']=units[nxt]; nxt+=1
                elif x['list']: x['unit']=units[x['list'].pop(0)]
                if x['unit'] is None: continue
                s,h,g=x['unit']; x['pos']=0; x['bytes']=g*32768.; x['phase']='load'
            left=True
            s,h,g=x['unit']
            if x['phase']=='chunk' and x['bytes']<=0:
                if x['pos']==ch[s]: x['phase']='store'; x['bytes']=g*32768.
                elif ready[s,x['pos'],h//2]<=t: x['bytes']=65e3 if g==1 else 73e3; x['pos']+=1; x['least']=t+(.9 if g==1 else 1.1)
                else: continue
            active.append(x)
        if not left: break
        if active:
            rate=min(ONE,RATE/len(active))*dt*1.0  # bytes per us units
            for x in active:
                x['bytes']-=rate
                if x['bytes']<=0:
                    if x['phase']=='load': x['phase']='chunk'; x['bytes']=0
                    elif x['phase']=='store': x['unit']=None; x['t']=t+.4; last=max(last,t)
                    elif t<x['least']: x['bytes']=1e-9
        t+=dt
    return max(end),last
if __name__=='__main__':
    for RATE in (4.5e6,5.5e6):
        for n,w in ((20,9),(32,9),(57,11)):
            print(RATE,n,'v3',*['%.1f'%x for x in run(n,False,w,RATE)],'v4',*['%.1f'%x for x in run(n,True,w,RATE)],'v4 whole',*['%.1f'%x for x in run(n,True,20,RATE)])
