bash clones/long4-lab/compile.sh | grep -E "C75|Used|[1-9][0-9]* bytes spill|rror|warn" | cut -c1-250
.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump -sass clones/long4-lab/build/native.cubin 2>/dev/null > clones/long4-lab/all.sass
python3 clones/long4-lab/loop.py $1
