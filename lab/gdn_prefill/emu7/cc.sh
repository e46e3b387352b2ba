#!/bin/bash
# cc.sh: compile to cubin
S=clones/prefill-lab/src; rm -rf $S; mkdir -p $S; cp clones/prefill/solutions/common/*.cuh clones/prefill/solutions/gdn_prefill/*.cu* $S
V=.venv/lib/python3.11/site-packages/tvm_ffi
cd $S; time /usr/local/cuda-13.0/bin/nvcc -gencode=arch=compute_90a,code=sm_90a -O3 -std=c++17 -Xptxas -v -Werror=all-warnings -I$V/include -I$(.venv/bin/python -c 'import tvm_ffi.libinfo as l;print(l.find_dlpack_include_path())') -cubin -o prefill.cubin "$@" prefill.cu 2>&1
