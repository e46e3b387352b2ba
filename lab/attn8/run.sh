# bash FOLDER/run.sh, in a repository root, with `. .gpu/setup` sourced; about 30 s. The checkout's dsa_attention, three builds of it
# side by side: as it is, with clock stamps, and ending once its rows have landed (patch.py; one that does not apply ends the run).
# Then stages in cycles and gathers in us, L2 cold (lab.py). SELF=1: only lab.py's arithmetic, without a GPU.
lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-attn8; start=$SECONDS
export PYTHONPATH="$PWD:${PYTHONPATH:-}"; mkdir -p "$scratch"; rm -f "$scratch"/*.so
[ -n "${SELF:-}" ] && exec python3 "$lab/lab.py" self
tools=$(PYTHONPATH=solutions/common python3 -c 'import toolkit; print(toolkit.find_toolkit((12, 1)).folder + "/bin/nvcc", toolkit.host_compiler())') || exit 1
for side in plain stamped gather; do
  (python3 "$lab/patch.py" . "$scratch/$side" $side && "${tools% *}" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a \
    -ccbin "${tools##* }" -Xcompiler -fPIC -shared -Xptxas -v "$scratch/$side/attend.cu" -o "$scratch/$side.so") > "$scratch/$side.txt" 2>&1 &
done; wait
for side in plain stamped gather; do
  [ -f "$scratch/$side.so" ] || { echo "$side: NOT BUILT"; tail -n 12 "$scratch/$side.txt"; exit 1; }
  grep -E "[1-9][0-9]* bytes spill" "$scratch/$side.txt" | sed "s/^/$side: /"
done
echo "built $((SECONDS - start)) s after the start"
[ -n "${BUILD_ONLY:-}" ] && exit 0
timeout -k 5 60 python3 "$lab/lab.py" run "$scratch" 2>&1 | grep -v Warning | tee "${OUT:-$scratch}/attn8.txt"; rc=${PIPESTATUS[0]}
echo "ended $((SECONDS - start)) s after the start, rc $rc"; exit "$rc"
