"""Discrete events of the stream kernel: SMs, one DRAM queue, L2 latency. Times in us, bytes."""
import heapq, sys
class Sim:
    def __init__(s): s.now=0.0; s.q=[]; s.n=0
    def at(s,t,f): s.n+=1; heapq.heappush(s.q,(max(t,s.now),s.n,f))
    def run(s):
        while s.q:
            s.now,_,f=heapq.heappop(s.q); f()
class Cond:  # list of waiters
    def __init__(s,sim): s.sim=sim; s.w=[]
    def wake(s):
        w,s.w=s.w,[]
        for f in w: s.sim.at(s.sim.now,f)
def spawn(sim,gen):
    def step():
        try: x=next(gen)
        except StopIteration: return
        if isinstance(x,Cond): x.w.append(step)
        else: sim.at(sim.now+x,step)
    sim.at(sim.now,step)
def run(experts,sms=132,BW=4.31e6,lat=0.8,l2=0.5,hol=0.0,W=11,R=4,c1=0.27,c2=0.3,wr=0.6,rel=0.9,dirty=0.0,start=0.9,ahead=4,stage=16384,f1=28,f2=8,u1=64,u2=112,issue=0.06,order=None,verbose=0):
    sim=Sim(); st=dict(free=0.0,bytes=0,ticket=0,last=0.0,dirty=dirty)
    total1=experts*u1; total=total1+experts*u2
    done=[0]*experts; dc=[Cond(sim) for _ in range(experts)]
    def dram(b):
        extra=0
        if st['dirty']>0: d=min(st['dirty'],b); st['dirty']-=d; extra=d
        st['free']=max(st['free'],sim.now)+(b+extra)/BW
        st['busy']=st.get('busy',0)+(b+extra)/BW
        return st['free']+lat
    def l2lat(): return l2+hol*max(0.0,st['free']-sim.now)
    def sm(i):
        units=[]; uc=Cond(sim)
        warr={}; rarr={}; wc=Cond(sim); rc=Cond(sim); consumed=[0]; cc=Cond(sim)
        def feedw():
            yield start
            yield l2lat()
            s=0
            t=st['ticket']; st['ticket']+=1; nxt=None
            while True:
                units.append(t if t<total else None); uc.wake()
                if t>=total: return
                n=f1 if t<total1 else f2
                for k in range(n):
                    while s-consumed[0]>=W: yield cc
                    a=dram(stage); ss=s
                    def arr(ss=ss): warr[ss]=1; wc.wake()
                    sim.at(a,arr)
                    if k==n-ahead: nt=st['ticket']; st['ticket']+=1; tready=sim.now+l2lat()
                    s+=1
                    yield issue
                if tready>sim.now: yield tready-sim.now
                t=nt
        def feedr():
            s=0; u=0
            while True:
                while len(units)<=u: yield uc
                t=units[u]; u+=1
                if t is None: return
                if t<total1:
                    yield l2lat(); n=f1
                else:
                    e=(t-total1)//u2; n=f2
                    while done[e]<u1: yield dc[e]
                    yield l2lat()
                for k in range(n):
                    while s-consumed[0]>=R: yield cc
                    ss=s
                    def arr(ss=ss): rarr[ss]=1; rc.wake()
                    sim.at(sim.now+l2lat(),arr); s+=1
                    yield 0.04
        def cons():
            s=0; u=0
            while True:
                while len(units)<=u: yield uc
                t=units[u]; u+=1
                if t is None: return
                first=t<total1
                for k in range(f1 if first else f2):
                    while s not in warr: yield wc
                    while s not in rarr: yield rc
                    c=c1 if first else c2
                    yield c*0.8
                    consumed[0]+=1; cc.wake(); s+=1
                    yield c*0.2
                yield wr
                if first:
                    e=t//u1
                    def fin(e=e):
                        done[e]+=1
                        if done[e]==u1: dc[e].wake(); st['c']=sim.now
                    sim.at(sim.now+rel+hol*max(0,st['free']-sim.now)*0.5,fin)
                else: st['last']=sim.now
        spawn(sim,feedw()); spawn(sim,feedr()); spawn(sim,cons())
    for i in range(sms): sm(i)
    sim.run()
    return st['last']+0.5, st.get('c',0), st['free']
if __name__=='__main__':
    for hol in (0,0.5,1):
      for dirty in (0,27e6,60e6):
        r=[run(e,hol=hol,dirty=dirty) for e in (2,7,28)]
        print('hol',hol,'dirty',dirty/1e6,'  '.join(f'{x[0]:.1f} (C {x[1]:.1f}, dram {x[2]:.1f}; over {x[0]-e*44.04/4.31:.1f})' for x,e in zip(r,(2,7,28))),flush=True)
