import os
src=os.environ.get('SRC','clones/moe8/solutions/moe')
s=open(src+'/moe.cu').read()
def grab(start,end):
    i=s.index(start); j=s.index(end,i); return s[i:j]
out='#define TVM_FFI_ICHECK(x) if(!(x)) std::cerr\n#include <iostream>\nnamespace {\n'
k=grab('// The same, which routes','void check_error')
k=k.replace('  extern __shared__ __align__(1024) uint8_t memory[];\n','  uint8_t* memory = (uint8_t*)cta_base();\n')
out+=k+grab('void check_map','// W1 as the first')+grab('// Weights as tiles have','// A call: everything')
out+='}\n'
open('extracted.h','w').write(out)
