import re,glob
for f in glob.glob('clones/attn4/solutions/dsa_attention/*.cu*'):
    s=open(f).read()
    s=s.replace('int64_t token','int token').replace('token * SLOTS','int64_t{token} * SLOTS').replace('token * HEADS','int64_t{token} * HEADS').replace('(int64_t{token} * HEADS + head) * CKV','(int64_t{token} * HEADS + head) * CKV')
    open(f,'w').write(s)
