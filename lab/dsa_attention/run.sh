# bash .gpu/lab/dsa_attention/run.sh SECONDS, in a repository root. Checks and times new native routes of
# dsa_attention (tree/, and variants/*.py, each a patch of it) beside the checkout's own, in turns.
seconds=${1:-330}; lab=$PWD/.gpu/lab/dsa_attention; scratch=${TMPDIR:-/tmp}/lab-dsa_attention
mkdir -p "$scratch"; start=$SECONDS; sides="base"
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
make_side() {  # NAME: a copy of the checkout with the new files, and those of the variant
  rm -rf "$scratch/$1"; mkdir -p "$scratch/$1"
  tar -xf "$scratch/tree.tar" -C "$scratch/$1"
  rm -f "$scratch/$1"/solutions/dsa_attention/*.cu*
  cp -r "$lab/tree/." "$scratch/$1/"
  if [ -d "$lab/variants/$1" ]; then rm -f "$scratch/$1"/solutions/dsa_attention/*.cu*; cp -r "$lab/variants/$1/." "$scratch/$1/"; fi
  if [ -f "$lab/variants/$1.py" ]; then (cd "$scratch/$1/solutions/dsa_attention" && python3 "$lab/variants/$1.py") || echo "variant $1: patch failed"; fi
}
pack='from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "dsa_attention", None).text)'
for v in "$lab"/variants/*; do v=$(basename "$v"); sides="$sides ${v%.py}"; done
for side in $sides; do
  make_side "$side"
  (cd "$scratch/$side" && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" > "$scratch/$side.json") || echo "$side: not packed"
done
python3 -c "$pack" > "$scratch/main.json" || exit 1
export TVM_FFI_CACHE_DIR=${TVM_FFI_CACHE_DIR:-$scratch/ffi}
mkdir -p "$TVM_FFI_CACHE_DIR"
for side in main $sides; do  # builds, side by side: one folder takes one builder at a time
  TVM_FFI_CACHE_DIR="$scratch/ffi-$side" timeout 200 python3 "$lab/lab.py" "$scratch" build "$side" > "$scratch/build-$side.txt" 2>&1 &
done
wait
cp "$scratch"/ffi-*/*.so "$TVM_FFI_CACHE_DIR/" 2>/dev/null
for side in main $sides; do tail -n 1 "$scratch/build-$side.txt" | cut -c1-200; done
fit=""
for side in $sides; do  # checks, side by side: a kernel that hangs is killed with its process
  case $side in stamped*) continue;; esac
  (OMP_NUM_THREADS=3 OPENBLAS_NUM_THREADS=3 timeout -k 5 100 python3 "$lab/lab.py" "$scratch" check "$side" > "$scratch/check-$side.txt" 2>&1; echo $? > "$scratch/check-$side.rc") &
done
wait
for side in $sides; do
  case $side in stamped*) continue;; esac
  if [ "$(cat "$scratch/check-$side.rc")" = 0 ]; then fit="$fit $side"; grep "cases," "$scratch/check-$side.txt"; else
    echo "$side: FAILED, rc $(cat "$scratch/check-$side.rc") (124, 137: it hung in the case named last)"; tail -n 14 "$scratch/check-$side.txt" | cut -c1-240; fi
done
for side in $sides; do
  case $side in stamped*) timeout -k 5 40 python3 "$lab/lab.py" "$scratch" stamps "$side" 2>&1 | tail -n 40 | cut -c1-200;; esac
done
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left > 20 ? left : 20)) python3 "$lab/lab.py" "$scratch" time "$((left - 10))" main $fit 2>&1 | tee "${OUT:-$scratch}/dsa_attention.txt" | tail -c 9000
[ -n "${OUT:-}" ] && cat "$scratch"/check-*.txt "$scratch"/build-*.txt > "$OUT/dsa_attention_details.txt"
left=$((seconds - (SECONDS - start)))
if [ "$left" -gt 60 ]; then
  cd "$scratch/base" && PYTHONPATH="$scratch/base:$PYTHONPATH" timeout -k 5 "$left" python3 -m pytest -q -x -p no:cacheprovider tests/gpu/test_dsa_attention.py -k whole 2>&1 | tail -12
else
  echo "GPU tests: skipped, $left s left"
fi
