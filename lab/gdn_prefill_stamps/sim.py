import re,subprocess,sys
T='.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump'
cub=sys.argv[1]
t=subprocess.run([T,'-sass',cub],capture_output=True,text=True).stdout
t=t[t.index('solve_kernel'):] if 'Function : ' not in t else [x for x in t.split('Function : ') if 'solve_kernel' in x.split('\n')[0]][0]
ins=[]
L=t.split('\n')
for i,l in enumerate(L):
    m=re.match(r'\s+/\*([0-9a-f]{4,5})\*/\s+(.*?);?\s+/\* 0x([0-9a-f]{16}) \*/',l)
    if m:
        hi=int(re.search(r'0x([0-9a-f]{16})',L[i+1]).group(1),16)
        c=hi>>41
        ins.append((m.group(2).rstrip(' ;'),c&15,(c>>5)&7,(c>>8)&7,(c>>11)&63))
def lat(op):
    if 'LDG' in op or 'LD.E' in op: return 500
    if op.startswith('LDSM'): return 33
    if op.startswith('LDS'): return 30
    if op.startswith('MUFU') or op.startswith('F2F') : return 25
    if op.startswith('HMMA'): return 33
    if op.startswith('SHFL'): return 25
    if op.startswith('HGMMA'): return 40
    if op.startswith('D'): return 20
    if op.startswith('S2') or op.startswith('R2'): return 25
    return 20
def run(a,b):
    now=0; sb=[0]*6; w=0; n=0
    for op,st,wb,rb,mask in ins[a:b]:
        core=re.sub(r'^@!?U?P\w+ ','',op)
        need=max([sb[k] for k in range(6) if mask>>k&1]+[0])
        if need>now: w+=need-now; now=need
        if wb<6: sb[wb]=max(sb[wb],now+lat(core))
        if rb<6: sb[rb]=max(sb[rb],now+12)
        now+=max(st,1); n+=1
    return n,now,w
marks=[i for i,x in enumerate(ins) if re.search(r'BAR.SYNC|WARPGROUP.DEPBAR|WARPGROUP.ARRIVE|MEMBAR',x[0])]
prev=0
print('instr from-to, ends with: count, cycles of one warp if nobody else, of them waits')
for m in marks+[len(ins)]:
    if m-prev>12: print(f'{prev:5d}-{m:5d} {ins[m][0][:34] if m<len(ins) else "end":34s}', *run(prev,m))
    prev=m
