"""python hot.py SOURCE.csv [KERNEL_INDEX] [--all]: SASS with stall samples. Without --all: lines with samples, and totals by stall reason."""
import csv, sys
path=sys.argv[1]; which=int(sys.argv[2]) if len(sys.argv)>2 and sys.argv[2].isdigit() else 0
rows=list(csv.reader(open(path)))
starts=[i for i,r in enumerate(rows) if r and r[0]=="Kernel Name"]
print("kernels:", [(k, rows[i][1][:60]) for k,i in enumerate(starts)])
i=starts[which]; end=starts[which+1] if which+1<len(starts) else len(rows)
head=rows[i+1]; body=[r for r in rows[i+2:end] if len(r)==len(head)]
col={h:k for k,h in reversed(list(enumerate(head)))}
stalls=[h for h in head if h.startswith("stall_") and "Not Issued" not in h]
num=lambda v: int(float(v)) if v not in ("","-") else 0
tot=sum(num(r[col["# Samples"]]) for r in body)
print("samples", tot, "instructions executed (warps)", sum(num(r[col["Instructions Executed"]]) for r in body))
print("by reason", sorted(((sum(num(r[col[s]]) for r in body), s) for s in stalls), reverse=True)[:12])
for n,r in enumerate(body):
    s=num(r[col["# Samples"]])
    if "--all" not in sys.argv and s*1000<tot*2: continue
    why=sorted(((num(r[col[x]]), x[6:]) for x in stalls), reverse=True)[:2]
    print(f"{n:5d} {s:6d} {100*s/max(tot,1):5.1f}% exec {r[col['Instructions Executed']]:>8} {' '.join(f'{x}:{c}' for c,x in why if c):28s} conf {r[col['L1 Wavefronts Shared Excessive']]:>7} {r[col['Source']].strip()[:100]}")
