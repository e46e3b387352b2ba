import sys,shutil,os
from pathlib import Path
B={'apart':('solve.cuh','    wait_cta_phase(&shared.barriers.apart, parity);\n',''),
'below':('solve.cuh','  wait_cta_phase(&shared.barriers.below, parity ^ 1);\n',''),
'free':('teams.cuh','    wait_cta_phase(&barriers.free, parity);\n',''),
'reads':('feed.cuh','    if (is_storing) finish_bulk_reads();\n',''),
'count':('feed.cuh','        finish_bulk_stores_before();\n',''),
'below_later':('feed.cuh','      if (before.tokens > 0 && is_first) free_place(&barriers.below);\n','      if (before.tokens > 0 && is_first) arrive_for_warp(&barriers.below);\n'),
}
src=sys.argv[1]
for n,(f,a,b) in B.items():
    to=Path(f'/tmp/g3/brk_{n}/tree'); shutil.rmtree(to,ignore_errors=True); shutil.copytree(src,to)
    p=to/'solutions/gdn_prefill'/f; t=p.read_text(); assert t.count(a)==1,(n,t.count(a)); p.write_text(t.replace(a,b))
    os.system(f'TREE={to} EMU=/tmp/g3/brk_{n} FAST=1 python3 make.py')
