set -e
cd clones/moe6-emu
cat > ex.py <<'P'
import sys
src,folder,new=sys.argv[1],sys.argv[2],sys.argv[3]=='new'
s=open(src+'/moe.cu').read()
def grab(start,end):
    i=s.index(start); j=s.index(end,i); return s[i:j]
out='#define TVM_FFI_ICHECK(x) if(!(x)) std::cerr\n#include <iostream>\nnamespace {\n'
out+=grab('template <typename S>\n__device__ __forceinline__ void init_barriers','// Grid: (SMs,); any')
if new:
    k=grab('template <typename S>\n__global__','// Grid: (SMs,) rounded')
    k=k.replace('  extern __shared__ __align__(1024) uint8_t memory[];\n','  uint8_t* memory = (uint8_t*)cta_base();\n')
    out+=k
out+=grab('void check_map','// Parts of the scratch')
out+=grab('// Parts of the scratch','// A number that no call' if new else 'void launch_routing')
out+='}\n'
open(folder+'/extracted.h','w').write(out)
r=open(src+'/route.cuh').read()
n='__shared__ FewTokens shared;'
open(folder+'/route.cuh','w').write(r.replace(n,'auto& shared = *reinterpret_cast<FewTokens*>(cta_base());'))
P
F="-std=c++17 -O3 -march=native -w -fPIC"
G="-Iclones/moe6-emu -I/usr/local/cuda-13.0/include"
if [ ! -e core.o ] || [ core.cc -nt core.o ]; then g++ $F $G -ffast-math -fno-finite-math-only -c core.cc -o core.o; fi
if [ ! -e old.so ] || [ core.cc -nt old.so ]; then mkdir -p old; python3 ex.py clones/tiles5-old/solutions/moe old old; g++ $F -O1 -Iold $G -Iclones/tiles5-old/solutions/moe -c main_old.cc -o main_old.o; g++ -shared core.o main_old.o -o old.so; fi
mkdir -p new; rm -f route.cuh extracted.h; python3 ex.py clones/moe6/solutions/moe new new; rm new/route.cuh; g++ $F -O1 -Inew $G -Iclones/moe6/solutions/moe -c main.cc -o main.o
g++ -shared core.o main.o -o emu.so
