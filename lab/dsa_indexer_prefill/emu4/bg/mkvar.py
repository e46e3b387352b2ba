import sys,os,subprocess,shutil
sys.path.insert(0,'clones/long4-lab')
import variants as v
name=sys.argv[1]
f=v.sources('clones/long4'); v.debug(f)
t=f['sinks.cuh']
if name=='fault':
    old="    if (passes && at < end[PAIR]) candidates[at] ="
    assert old in t
    t=t.replace(old,"""    const int faulty_row = PAIR * 2 + threadIdx.x % 2;
    const bool skips = faulty_row == 3 && key % 1000 == 777 && blockIdx.x < 8;
    if (faulty_row == 2 && key % 3000 == 1234 && passes) score = 5000.0f;
    if (passes && at < end[PAIR] && !skips) candidates[at] =""")
f['sinks.cuh']=t
if name=='fault':
    r=f['rank.cuh']; old="  if (place < need) ids[place] = memory.few_ids[mine];"; assert old in r
    f['rank.cuh']=r.replace(old,"  if (place < need && !(blockIdx.x == 5 && place == need - 1)) ids[place] = memory.few_ids[mine];")
os.makedirs('clones/long4-lab/var_debug',exist_ok=True)
for k,x in f.items(): open('clones/long4-lab/var_debug/'+k,'w').write(x)
subprocess.check_call(['python3','make_emu_debug.py'])
d='src_'+name; shutil.rmtree(d,ignore_errors=True); os.makedirs(d)
for k in ('feed','plan','rank','score','select','sinks'):
    open(f'{d}/{k}.cuh','w').write(f[k+'.cuh'].replace('extern __shared__ __align__(1024) uint8_t memory[];',''))
s=open('emu_debug.cpp').read()
if 'int why[2048]' not in s: s=s.replace('uint8_t* smem_base;','uint8_t* smem_base; int why[2048];',1)
open(f'emu_{name}.cpp','w').write(s)
subprocess.check_call(f'g++ -std=c++17 -O2 -g -U_FORTIFY_SOURCE -w -shared -fPIC -fopenmp -Istubs -I. -I{d} -ffp-contract=off -o lib_{name}.so emu_{name}.cpp',shell=True)
