# bash FOLDER/run.sh SECONDS, in a repository root. Checks and times new forms of dsa_attention's native route beside the
# checkout's own, in turns. Sides, each a complete tree: main is the checkout; attn3, attn4 the checkout with that .tar laid
# over it; NAME_first2, _first3 and _direct with that patch of variants/; stamped_NAME is NAME with clock stamps, and prints
# how many clusters of each size the device holds. SIDES picks others.
seconds=${1:-330}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-attn4
mkdir -p "$scratch"; start=$SECONDS; sides=${SIDES:-attn3 attn4 attn4_direct stamped_attn4 stamped_attn4_direct}
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
make_side() {  # NAME
  side=$1; rm -rf "$scratch/$side"; mkdir -p "$scratch/$side"
  tar -xf "$scratch/tree.tar" -C "$scratch/$side" || return 1
  for form in attn3 attn4; do case $side in *$form*)
    rm -f "$scratch/$side"/solutions/dsa_attention/*.cu*
    tar -xf "$lab/$form.tar" -C "$scratch/$side" || return 1;; esac; done
  for patch in first2 first3 direct; do case $side in *_$patch)
    (cd "$scratch/$side/solutions/dsa_attention" && python3 "$lab/variants/$patch.py") || return 1;; esac; done
  case $side in stamped_*)
    (cd "$scratch/$side/solutions/dsa_attention" && python3 "$lab/variants/stamped.py") || return 1;; esac
  [ -f "$scratch/$side/solutions/dsa_attention/attend.cu" ]
}
pack='from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "dsa_attention", None).text)'
for side in $sides; do
  make_side "$side" || { echo "$side: not made"; continue; }
  (cd "$scratch/$side" && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" > "$scratch/$side.json") || echo "$side: not packed"
done
python3 -c "$pack" > "$scratch/main.json" || exit 1
for side in main $sides; do echo "$side $(sha256sum < "$scratch/$side.json" | cut -c1-12) $(wc -c < "$scratch/$side.json") bytes"; done
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
  case $side in stamped*) timeout -k 5 40 python3 "$lab/lab.py" "$scratch" stamps "$side" 2>&1 | tail -n 40 | cut -c1-420;; esac
done
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left > 20 ? left : 20)) python3 "$lab/lab.py" "$scratch" time "$((left - 10))" main $fit 2>&1 | tee "${OUT:-$scratch}/dsa_attention.txt" | tail -c 9000
[ -n "${OUT:-}" ] && cat "$scratch"/check-*.txt "$scratch"/build-*.txt > "$OUT/dsa_attention_details.txt"
left=$((seconds - (SECONDS - start)))
if [ "$left" -gt 60 ]; then
  echo "GPU tests of attn4"
  cd "$scratch/attn4" && PYTHONPATH="$scratch/attn4:$PYTHONPATH" timeout -k 5 "$left" python3 -m pytest -q -x -p no:cacheprovider tests/gpu/test_dsa_attention.py -k whole 2>&1 | tail -12
else
  echo "GPU tests: skipped, $left s left"
fi
