"""Schedule of T's units on 66 clusters (or 132 CTAs), cycles a k block of 128 rows given."""
import heapq, sys
from harness.dataset.routing import expert_loads
GHZ=1.755
def run(loads, full=1152, half=640, single=1152, single_half=900, epi=(2600,900), workers=66, pairs=True):
    units=[]
    for kind,(parts,blocks) in enumerate(((16,56),(28,16))):
        for n in loads:
            t=-(-n//128); p=t//2 if pairs else 0
            for part in range(parts):
                for i in range(p):
                    rows=max(min(n-2*i*128,128),1); 
                    units.append((kind, blocks*full+epi[kind]))
            rest = t-2*p
            for r in range(rest):
                idx=2*p+r; rows=min(n-idx*128,128); c=(single_half if rows<=64 else single)
                reps = parts//2 if pairs else parts
                units += [(kind, blocks*c+epi[kind])]*reps
    h=[0.0]*workers; heapq.heapify(h)
    for k,c in units: heapq.heappush(h, heapq.heappop(h)+c)
    return max(h), sum(c for _,c in units)/workers
for T in (2048,4096,5000,11948,14107):
    l=expert_loads(T,32); base=T*44.04e6/4096/132
    for name,kw in (("as counted",{}),("all at the tensor rate",dict(full=1024,half=512,single=1024,single_half=512)),("alone, 132 CTAs",dict(workers=132,pairs=False,single_half=700))):
        m,a=run(l,**kw); print(T,name,f"end {m/GHZ/1e3:.0f} us, mean {a/GHZ/1e3:.0f}, tensor time of real rows {base/GHZ/1e3:.0f}")
