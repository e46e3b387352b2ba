# bash FOLDER/run.sh, in a repository root, with `. .gpu/setup` sourced; about 45 s. The checkout's moe, two builds of it side by side: as it
# is, and with clock stamps (patch.py; a patch that does not apply ends the run). Then stages in us, L2 cold, at T = 1, 80, 901, 14107 (lab.py).
# SELF=1: only lab.py's arithmetic, without a GPU. BUILD_ONLY=1: only the builds.
lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-moe12; start=$SECONDS
export PYTHONPATH="$PWD:${PYTHONPATH:-}"; mkdir -p "$scratch"; rm -f "$scratch"/*.so
[ -n "${SELF:-}" ] && exec python3 "$lab/lab.py" self
what=${WHAT:-run}; sides="plain stamped"; [ "$what" = limits ] && sides=plain
tools=$(PYTHONPATH=solutions/common python3 -c 'import toolkit; print(toolkit.find_toolkit((12, 1)).folder + "/bin/nvcc", toolkit.host_compiler())') || exit 1
build() {
  python3 "$lab/patch.py" . "$scratch/$1" $1 && "${tools% *}" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a \
    -ccbin "${tools##* }" -Xcompiler -fPIC -shared -Xptxas -v "$scratch/$1/moe.cu" -o "$scratch/$1.so"
}
for side in $sides; do
  build $side > "$scratch/$side.txt" 2>&1 &
  [ -n "${ONE_AT_A_TIME:-}" ] && wait
done; wait
for side in $sides; do
  [ -f "$scratch/$side.so" ] || { echo "$side: NOT BUILT"; tail -n 12 "$scratch/$side.txt"; exit 1; }
  grep -E "[1-9][0-9]* bytes spill" "$scratch/$side.txt" | sed "s/^/$side: /"
done
echo "built $((SECONDS - start)) s after the start"
[ -n "${BUILD_ONLY:-}" ] && exit 0
timeout -k 5 60 python3 "$lab/lab.py" "$what" "$scratch" 2>&1 | grep -v Warning | tee "${OUT:-$scratch}/moe10-$what.txt"; rc=${PIPESTATUS[0]}
echo "ended $((SECONDS - start)) s after the start, rc $rc"; exit "$rc"
