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
