import heapq,sys
c=[73,16,21,25,22,111,24,48,15,26,35,28,18,38,14,16,20,20,17,15,15,14,30,19,17,42,23,58,14,32,18,17]
def run(l1,l2,h1,h2,BW=4.31e6,lat=0.9,l2lat=0.6,SMS=132,W=4,start=6.0,warm=0,epi=(2.0,1.5)):
    tiles=[(e,min(64,n-64*i)) for e,n in enumerate(c) for i in range(-(-n//64))]
    def units(parts,kind):
        out=[]
        for e in range(32):
            t=[x for x in tiles if x[0]==e]
            for p in range(parts):
                for (_,r) in t: out.append((kind,e,p,r))
        return out
    U=units(16,0)+units(28,1); tk=0; free=0.0; seen={}; warmed=warm
    def fetch(key,now):
        nonlocal free,warmed
        if key in seen: return max(seen[key],now)+l2lat
        if warmed>0: warmed-=32768; seen[key]=now; return now+l2lat
        free=max(free,now)+32768/BW; seen[key]=free+lat-l2lat; return free+lat
    # per SM: arrivals requested W ahead
    class SM: pass
    sms=[]; heap=[]; end=0; done1=0; first_end=0
    for i in range(SMS):
        s=SM(); s.q=[]; s.u=None; s.stage=0; s.req=0; s.list=[]; s.t=start; sms.append(s)
    def next_stage(s):
        nonlocal tk
        while True:
            if s.u is None:
                if tk>=len(U): return None
                s.u=U[tk]; tk+=1; s.k=0
            n=56 if s.u[0]==0 else 16
            if s.k<n:
                r=(s.u,s.k,s.k==n-1); s.k+=1
                return r
            s.u=None
    for s in sms:
        s.pend=[]
        for _ in range(W): heapq.heappush(heap,(start,id(s),0,s))
        s.clock=start
    import itertools
    cnt=itertools.count(); heap=[(start,next(cnt),s) for s in sms for _ in range(W)]; heapq.heapify(heap)
    while heap:
        t,_,s=heapq.heappop(heap)
        r=next_stage(s)
        if r is None: continue
        u,k,last=r
        a=fetch((u[0],u[1],u[2],k),t)
        cost=(l1,l2)[u[0]] if u[3]<=32 else (h1,h2)[u[0]]
        s.clock=max(s.clock,a)+cost
        if last: s.clock+=epi[u[0]]
        end=max(end,s.clock)
        heapq.heappush(heap,(s.clock,next(cnt),s))
    return end, free
G=1.75e3
def cyc(*v,**k): print(v,k,'end %.1f dram last %.1f'%run(*[x/G for x in v],**k))
cyc(1200,1250,1700,1600)
cyc(800,1250,1700,1600)
cyc(800,800,1150,1150)
cyc(1200,1600,1700,2700,epi=(4,3))
cyc(1200,1250,1700,1600,epi=(4,3))
