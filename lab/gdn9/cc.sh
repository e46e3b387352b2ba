#!/bin/bash
# cc.sh TREE OUT [flags]
export CUDA_HOME=/usr/local/cuda-13.0
T=$1; O=$2; shift 2
rm -rf $O; mkdir -p $O; cp $T/solutions/common/*.cuh $T/solutions/gdn_prefill/*.cu* $O
V=REPO/.venv/lib/python3.11/site-packages/tvm_ffi
D=$(REPO/.venv/bin/python -c 'import tvm_ffi.libinfo as l;print(l.find_dlpack_include_path())')
cd $O && $CUDA_HOME/bin/nvcc -Xcompiler -fPIC -std=c++17 -gencode=arch=compute_90a,code=sm_90a -O3 -I$V/include -I$D -cubin -o prefill.cubin "$@" prefill.cu
