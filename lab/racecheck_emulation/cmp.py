import sys,subprocess,re
B='REPO/.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/nvdisasm'
def secs(p):
    import struct
    e=open(p,'rb').read(); shoff=struct.unpack_from('<Q',e,0x28)[0]; n,ns,si=struct.unpack_from('<HHH',e,0x3a)
    S=[struct.unpack_from('<IIQQQQIIQQ',e,shoff+i*n) for i in range(ns)]; st=S[si]; d={}
    for s in S:
        nm=e[st[4]+s[0]:].split(b'\0')[0].decode(); nm=re.sub(r'_GLOBAL__N__[0-9a-f]{8}_\d+_prefill_cu_[0-9a-f]{8}\d*','NS',nm)
        d[nm]=b'' if s[1]==8 else e[s[4]:s[4]+s[5]]
    return d
a,b=secs(sys.argv[1]),secs(sys.argv[2])
for k in sorted(set(a)|set(b)):
    if k not in a or k not in b: print('only in one',k); continue
    print('same' if a[k]==b[k] else 'DIFFER',len(a[k]),len(b[k]),k)
