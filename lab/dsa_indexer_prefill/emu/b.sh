bash clones/longctx-lab/compile.sh | grep -E "C75|Used|[1-9][0-9]* bytes spill|rror|warn" | cut -c1-250
.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump -sass clones/longctx-lab/build/native.cubin 2>/dev/null > clones/longctx-lab/all.sass
python3 clones/longctx-lab/loop.py $1
