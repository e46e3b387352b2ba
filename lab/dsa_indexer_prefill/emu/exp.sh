# exp.sh DIR : compile prefill.cu in DIR, report loop
cd $1; /usr/local/cuda-13.0/bin/nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a $(cat clones/longctx-lab/inc) -Xptxas=-v -cubin -o native.cubin prefill.cu 2>&1 | grep -E "C75|[1-9][0-9]* bytes spill|rror"
.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump -sass native.cubin 2>/dev/null > clones/longctx-lab/all.sass
python3 clones/longctx-lab/loop.py 1 | sed -n 2,3p
