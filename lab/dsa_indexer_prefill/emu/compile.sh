set -e
P=.venv/bin/python
R=clones/longctx/solutions
B=${1:-clones/longctx-lab/build}; ARCH=${2:-90a}
mkdir -p $B; cp $R/dsa_indexer_prefill/*.cu* $R/common/*.cuh $B; cd $B
[ -f clones/longctx-lab/inc ] || $P -c "
import tvm_ffi.libinfo as l
print('-I'+l.find_include_path(),'-I'+l.find_dlpack_include_path())" > clones/longctx-lab/inc
/usr/local/cuda-13.0/bin/nvcc -std=c++17 -O3 -gencode=arch=compute_$ARCH,code=sm_$ARCH $(cat clones/longctx-lab/inc) -Xptxas=-v -Werror=all-warnings -cubin -o native.cubin prefill.cu 2>&1 | grep -v "^$" | c++filt
