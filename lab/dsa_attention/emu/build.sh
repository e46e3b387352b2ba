# build.sh SOURCE_DIR OUT
set -e
d=$(mktemp -d); cp $1/*.cuh $1/attend.cu $d/; rm -f $d/{async_copy,cluster,fast_math,tensor_core,named_barriers}.cuh
sed -e '/tvm\/ffi/d' -e 's/extern __shared__ __align__(128) uint8_t memory\[\];/uint8_t* memory = (uint8_t*)M->arena + size_t(F->cta) * SMEM;/' $d/attend.cu | awk '/^void check_error/{exit} {print}' | sed '$d' > $d/kernel.inc
echo "}" >> $d/kernel.inc
g++ -std=c++17 -O2 -fPIC -shared -U_FORTIFY_SOURCE -w -Iclones/attn-lab/emu/inc -I$d clones/attn-lab/emu/main.cc -o $2
