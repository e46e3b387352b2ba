# bash FOLDER/run.sh SECONDS, in a repository root. Checks and times moe's tiles beside the checkout's routes, in turns. Sides:
# main is the checkout; tiles2 the checkout with tiles2.tar laid over it; tiles2_NAME is tiles2 with that change of
# variants/variants.py (timed at T = 14107 alone; wrong but for nostagger, nocast, turns, order). SIDES picks others.
seconds=${1:-560}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-tiles2
mkdir -p "$scratch"; start=$SECONDS
sides=${SIDES:-tiles2 tiles2_mathonly tiles2_math tiles2_nopromo tiles2_feedonly tiles2_nostagger tiles2_nocast tiles2_turns tiles2_order}
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
pack='import sys; from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "moe", sys.argv[1] if len(sys.argv) > 1 else None).text)'
for side in $sides; do
  rm -rf "$scratch/$side"; mkdir -p "$scratch/$side"; tar -xf "$scratch/tree.tar" -C "$scratch/$side"; rm -f "$scratch/$side"/solutions/moe/*.cu*
  tar -xf "$lab/tiles2.tar" -C "$scratch/$side" || exit 1
  case $side in *_*) (cd "$scratch/$side/solutions/moe" && python3 "$lab/variants/variants.py" "${side#*_}") || { echo "$side: not made"; continue; };; esac
  (cd "$scratch/$side" && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" > "$scratch/$side.json") || echo "$side: not packed"
done
python3 -c "$pack" > "$scratch/main.json" || exit 1
python3 -c "$pack" portable > "$scratch/portable.json" || exit 1
export TVM_FFI_CACHE_DIR=${TVM_FFI_CACHE_DIR:-$scratch/ffi}; mkdir -p "$TVM_FFI_CACHE_DIR"
for side in main $sides; do
  TVM_FFI_CACHE_DIR="$scratch/ffi-$side" timeout 250 python3 "$lab/lab.py" "$scratch" build "$side" > "$scratch/build-$side.txt" 2>&1 &
done
wait
cp "$scratch"/ffi-*/*.so "$TVM_FFI_CACHE_DIR/" 2>/dev/null
for side in main $sides; do echo "$side: $(tail -n 1 "$scratch/build-$side.txt" | cut -c1-200)"; done
echo "built $((SECONDS - start)) s after the start"
timeout -k 5 200 python3 "$lab/lab.py" "$scratch" check tiles2 > "$scratch/check.txt" 2>&1; rc=$?
grep -v "^case" "$scratch/check.txt" | tail -n 30 | cut -c1-330
[ "$rc" = 0 ] || { echo "check: rc $rc (124, 137: it hung in the case named last)"; tail -n 2 "$scratch/check.txt" | cut -c1-300; }
echo "checked $((SECONDS - start)) s after the start"
fit=$sides; case $rc in 124|137) fit="";; esac  # what hangs is not timed; what is wrong is, for its reasons
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left > 30 ? left : 30)) python3 "$lab/lab.py" "$scratch" time "$((left - 60))" main $fit 2>&1 | tee "${OUT:-$scratch}/moe_tiles.txt" | tail -c 7000
left=$((seconds - (SECONDS - start)))
if [ "$left" -gt 45 ] && [ -n "$fit" ] && command -v ncu > /dev/null; then
  timeout -k 5 $((left - 5)) ncu -f --clock-control none -k regex:tile_kernel -s 2 -c 1 --set full --import-source no -o "$scratch/tiles2" python3 "$lab/lab.py" "$scratch" one tiles2 14107 > "$scratch/ncu.log" 2>&1
  ncu -i "$scratch/tiles2.ncu-rep" --page source --csv > "${OUT:-$scratch}/tiles2.source.csv" 2>/dev/null
  ncu -i "$scratch/tiles2.ncu-rep" --page details --csv > "${OUT:-$scratch}/tiles2.details.csv" 2>/dev/null
  grep -E "Duration|SM Frequency|L2 Cache Throughput|DRAM Throughput|Shared|Issue Slots Busy|Tensor" "${OUT:-$scratch}/tiles2.details.csv" | cut -d, -f10-15 | head -20
fi
[ -n "${OUT:-}" ] && cat "$scratch"/check.txt "$scratch"/build-*.txt > "$OUT/moe_tiles_details.txt"
if [ "$((seconds - (SECONDS - start)))" -gt 60 ]; then
  cd "$scratch/tiles2" && PYTHONPATH="$scratch/tiles2:$PYTHONPATH" timeout -k 5 "$((seconds - (SECONDS - start)))" python3 -m pytest -q -x -p no:cacheprovider tests/gpu/test_moe.py -k "whole or tiles or unit or native or streams" 2>&1 | tail -8
fi
