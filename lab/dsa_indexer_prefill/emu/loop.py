import re,sys
from collections import Counter
mode=sys.argv[1] if len(sys.argv)>1 else '1'
cur=None;body=[]
for l in open('clones/longctx-lab/all.sass'):
    m=re.search(r'Function : (\S+)',l)
    if m: cur=m[1]
    if cur and f'score_kernelILNS_4ModeE{mode}' in cur:
        m=re.match(r'\s+/\*([0-9a-f]{4,5})\*/\s+(.*?);',l)
        if m: body.append((int(m[1],16),m[2].strip()))
idx=[i for i,(a,t) in enumerate(body) if 'QGMMA' in t]
dep=[i for i,(a,t) in enumerate(body) if 'DEPBAR.LE gsb0' in t]
print(len(body), len(idx), [hex(body[i][0]) for i in dep])
for i in range(dep[-1],len(body)):
    m=re.search(r'BRA.* (0x[0-9a-f]+)',body[i][1])
    if m and int(m[1],16)<body[idx[0]][0] and int(m[1],16)>body[idx[0]][0]-0x800:
        end=i; target=int(m[1],16); break
loop=[t for a,t in body if target<=a<=body[end][0]]
c=Counter(t.split()[0].split('.')[0] if not t.startswith('@') else t.split()[1].split('.')[0] for t in loop)
print('loop',len(loop),'without turns about',len(loop)-c['FMUL']+2, c.most_common(45))
open('clones/longctx-lab/loop.txt','w').write('\n'.join(f'{a:x} {t}' for a,t in body if target<=a<=body[end][0]))
mx={}
for l in open('clones/longctx-lab/all.sass'):
    m=re.search(r'Function : (\S+)',l)
    if m: cur=m[1][-40:]
    for r in re.findall(r'\bR(\d+)\b',l): mx[cur]=max(mx.get(cur,0),int(r))
print(mx)
