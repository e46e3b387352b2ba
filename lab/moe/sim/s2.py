from sim import run
import itertools
for hol,d in ((1,27e6),(1,0),(0,27e6)):
  for W,R in ((11,4),(11,5),(10,5),(9,6),(8,7),(6,7),(10,7),(11,7)):
    r=[run(e,hol=hol,dirty=d,W=W,R=R)[0] for e in (2,7)]
    print('hol',hol,'dirty',d/1e6,'W',W,'R',R,[round(x,1) for x in r],flush=True)
  r=[run(e,hol=hol,dirty=d,c1=.2,c2=.2)[0] for e in (2,7)]; print('faster consumer',[round(x,1) for x in r])
  r=[run(e,hol=hol,dirty=d,start=.4)[0] for e in (2,7)]; print('start .4',[round(x,1) for x in r])
  r=[run(e,hol=hol,dirty=d,u1=128,f1=14)[0] for e in (2,7)]; print('first in K halves (no cost)',[round(x,1) for x in r])
  r=[run(e,hol=hol,dirty=d,rel=.3,wr=.3)[0] for e in (2,7)]; print('rel/wr .3',[round(x,1) for x in r])
