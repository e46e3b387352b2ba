# bash lab/dsa_attention/run.sh SECONDS, in a repository root. Checks and times new native routes of
# dsa_attention beside the checkout's own, in turns. SIDES: which, "base" is tree/, a name of variants/ is tree/ with
# that folder's files or that patch, stamped_NAME is NAME with clock stamps.
seconds=${1:-330}; lab=$PWD/lab/dsa_attention; scratch=${TMPDIR:-/tmp}/lab-dsa_attention
mkdir -p "$scratch"; start=$SECONDS; sides=${SIDES:-base attn2 stamped stamped_attn2}
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
make_side() {  # NAME: a copy of the checkout with the new files, and those of the variant
  rm -rf "$scratch/$1"; mkdir -p "$scratch/$1"
  tar -xf "$scratch/tree.tar" -C "$scratch/$1"
  rm -f "$scratch/$1"/solutions/dsa_attention/*.cu*
  cp -r "$lab/tree/." "$scratch/$1/"
  from=${1#stamped_}; patch=$1; case $1 in stamped_*) patch=stamped;; esac
  if [ -d "$lab/variants/$from" ]; then rm -f "$scratch/$1"/solutions/dsa_attention/*.cu*; cp -r "$lab/variants/$from/." "$scratch/$1/"; fi
  if [ -f "$lab/variants/$patch.py" ]; then (cd "$scratch/$1/solutions/dsa_attention" && python3 "$lab/variants/$patch.py") || echo "variant $1: patch failed"; fi
}
pack='from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "dsa_attention", None).text)'
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
fit=""; parts=4
for side in $sides; do  # checks, cases and sides side by side: a kernel that hangs is killed with its process
  case $side in stamped*) continue;; esac
  for part in $(seq 0 $((parts - 1))); do
    (OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 timeout -k 5 60 python3 "$lab/lab.py" "$scratch" check "$side" "$part" "$parts" > "$scratch/check-$side-$part.txt" 2>&1; echo $? > "$scratch/check-$side-$part.rc") &
  done
done
wait
for side in $sides; do
  case $side in stamped*) continue;; esac
  bad=0
  for part in $(seq 0 $((parts - 1))); do
    rc=$(cat "$scratch/check-$side-$part.rc")
    if [ "$rc" = 0 ]; then grep "cases," "$scratch/check-$side-$part.txt"; else
      bad=1; echo "$side part $part: FAILED, rc $rc (124, 137: it hung in the case named last)"; tail -n 7 "$scratch/check-$side-$part.txt" | cut -c1-240; fi
  done
  [ "$bad" = 0 ] && fit="$fit $side"
  [ "$bad" = 1 ] && [ -n "${TIME_WRONG-1}" ] && ! grep -qE '^(124|137)$' "$scratch"/check-"$side"-*.rc && { fit="$fit $side"; echo "$side: timed all the same, WRONG above"; }
done
echo "checked $((SECONDS - start)) s after the start"
for side in $sides; do
  case $side in stamped*) timeout -k 5 40 python3 "$lab/lab.py" "$scratch" stamps "$side" 2>&1 | tail -n 40 | cut -c1-200;; esac
done
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left > 20 ? left : 20)) python3 "$lab/lab.py" "$scratch" time "$((left - 10))" main $fit 2>&1 | tee "${OUT:-$scratch}/dsa_attention.txt" | tail -c 9000
[ -n "${OUT:-}" ] && cat "$scratch"/check-*.txt "$scratch"/build-*.txt > "$OUT/dsa_attention_details.txt"
left=$((seconds - (SECONDS - start)))
if [ "$left" -gt 60 ]; then
  last=base; for side in $fit; do last=$side; done; echo "GPU tests of $last"
  cd "$scratch/$last" && PYTHONPATH="$scratch/$last:$PYTHONPATH" timeout -k 5 "$left" python3 -m pytest -q -x -p no:cacheprovider tests/gpu/test_dsa_attention.py -k whole 2>&1 | tail -12
else
  echo "GPU tests: skipped, $left s left"
fi
