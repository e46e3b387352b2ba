# bash FOLDER/run.sh SECONDS, in a repository root. Checks and times moe's steps beside the checkout, in turns. Sides: main is the
# checkout; base, planes, wide, guess the checkout with that tar laid over it: before; both planes of C in one product of the units of
# 256 x 64; products of 128 columns for tiles; weights requested to the L2 while tokens are routed. A side NAME_CHANGE is NAME with
# that change of variants.py; lab.py says at which lengths.
seconds=${1:-70}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-moe6
mkdir -p "$scratch"; start=$SECONDS
steps=$(cat "$lab/steps"); sides="$steps $(cat "$lab/variants" 2>/dev/null)"
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
pack='import sys; from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "moe", sys.argv[1] if len(sys.argv) > 1 else None).text)'
made=""
for side in $sides; do
  rm -rf "$scratch/$side"; mkdir -p "$scratch/$side"; tar -xf "$scratch/tree.tar" -C "$scratch/$side"
  rm -f "$scratch/$side"/solutions/moe/*.cu* "$scratch/$side"/solutions/common/*.cu*
  tar -xf "$lab/tars/${side%%_*}.tar" -C "$scratch/$side" || exit 1
  case $side in *_*) (cd "$scratch/$side/solutions/moe" && python3 "$lab/variants.py" "${side##*_}") || { echo "$side: not made"; continue; };; esac
  (cd "$scratch/$side" && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" > "$scratch/$side.json") && made="$made $side" || echo "$side: not packed"
done
sides=$made
python3 -c "$pack" > "$scratch/main.json" || exit 1
python3 -c "$pack" portable > "$scratch/portable.json" || exit 1
export TVM_FFI_CACHE_DIR=${TVM_FFI_CACHE_DIR:-$scratch/ffi}; mkdir -p "$TVM_FFI_CACHE_DIR"
pids=""
for side in main $sides; do
  TVM_FFI_CACHE_DIR="$scratch/ffi-$side" timeout 250 python3 "$lab/lab.py" "$scratch" build "$side" > "$scratch/build-$side.txt" 2>&1 & pids="$pids $!"
done
wait $pids
cp "$scratch"/ffi-*/*.so "$TVM_FFI_CACHE_DIR/" 2>/dev/null
fit=""
for side in main $sides; do
  if grep -q "^built" "$scratch/build-$side.txt"; then [ "$side" = main ] || fit="$fit $side"; else echo "$side: $(tail -n 2 "$scratch/build-$side.txt" | cut -c1-300)"; fi
done
echo "built $((SECONDS - start)) s after the start:$fit"
pids=""; checked="${CHECK:-guess}"
for side in $checked; do timeout -k 5 60 python3 "$lab/lab.py" "$scratch" check "$side" > "$scratch/check-$side.txt" 2>&1 & pids="$pids $!"; done
wait $pids
good=""
for side in $checked; do
  tail -n 1 "$scratch/check-$side.txt" | cut -c1-200; grep -A1 "^FAIL" "$scratch/check-$side.txt" | cut -c1-330 | head -12
  grep -q "cases, " "$scratch/check-$side.txt" || { echo "$side hung or died in:"; tail -n 3 "$scratch/check-$side.txt" | cut -c1-300; fit=$(for s in $fit; do case $s in "$side"|"$side"_*) ;; *) echo "$s";; esac; done); }
done
for side in $checked; do grep "^ok" "$scratch/check-$side.txt" | cut -c1-200; done
echo "checked $((SECONDS - start)) s after the start"
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left > 34 ? left : 34)) python3 "$lab/lab.py" "$scratch" time "$((left > 34 ? left - 8 : 26))" main $fit 2>&1 | tee "${OUT:-$scratch}/moe_moe6.txt" | tail -c 11000
echo "timed $((SECONDS - start)) s after the start"
[ -n "${OUT:-}" ] && cat "$scratch"/check-*.txt "$scratch"/build-*.txt > "$OUT/moe_moe6_details.txt"
exit 0
