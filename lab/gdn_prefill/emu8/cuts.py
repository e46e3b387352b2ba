import ctypes,random,sys
sys.path.insert(0,'clones/prefill8-lab/model')
from model import cuts_of
L=ctypes.CDLL('clones/prefill8-lab/emu/emu.so')
random.seed(1); seen={}
def units(l,solve=116):
    l=sorted(l,reverse=True); a=(ctypes.c_int*8)(*l); out=(ctypes.c_int*(8*(400+16*sum(l))))()
    n=L.cuts(len(l),a,sum(l)*64,solve,out); return [tuple(out[8*i:8*i+8]) for i in range(n)]
for trial in range(60):
    n=random.randint(1,8); l=[random.choice((0,1,5,random.randint(0,40),random.randint(20,110),random.randint(90,200))) for _ in range(n)]
    if trial<10: l=[[33],[74,16],[35,6,6,2,2],[31,21],[64],[22,21,21],[128],[64,64],[400],[96,63]][trial]
    if sum(l)<8*len(l): continue
    us=units(l); want=cuts_of(l,len(l)); order=sorted(l,reverse=True)
    # state units, in order
    flat=[(r,sum(s[:i]),c,i) for r,s in enumerate(want) for i,c in enumerate(s)]
    at=0; later=0
    for r,first,c,i in flat:
        for tr in ([1,0] if i else [0]):
            for u in range(16):
                x=us[at]; at+=1
                assert x[1:7]==(r,first,c,u//2,u%2,tr),(l,at,x,(r,first,c,i)); assert x[7]%16==(later if i else 15),(l,x)
        if i: later+=1
    rest=us[at:]
    outs=[x for x in rest]
    assert len(outs)==8*sum(l) and len(set((x[1],x[2],x[4]) for x in outs))==8*sum(l),l
    firsts=[x for x in outs if x[7]%16==15]; assert outs[:len(firsts)]==firsts
    back=[next(c for r,f,c,i in flat if r==x[1] and i==0)-1-x[2] for x in firsts]; assert back==sorted(back,reverse=True)
    seen[tuple(order)]=want
print(len(seen),'agree'); [print(k,v) for k,v in list(seen.items())[:10]]
