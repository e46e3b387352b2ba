# bash FOLDER/run.sh SECONDS, in a repository root. Floors first: kernels that do nothing in the launch shape of the room's
# (floors.cu), steps of one CTA with cold and hot code (micro.cu, with the last side's headers). Then checks and times steps of
# dsa_attention's native route beside the checkout's own, in turns, and stamps of the last. Sides, each a complete tree: main is
# the checkout; NAME the checkout with NAME.tar laid over it: queries (the form before one softmax for both tiles), then,
# cumulative on the checkout's form, values (behind the maxima, block by block beside the products), trims (one branch behind the
# last product of a token alone with one block), held (keys' loads a batch ahead, no more), tiled (the second tile's operands
# loaded while the first is multiplied). NAME_PATCH is NAME with
# variants/PATCH.py: first2 (rows of more than 32 entries shared), dims (cluster's size known to the compiler), nomag (without
# magnitudes: timed only, wrong). stamped_NAME is NAME with clock stamps of all 16 CTAs. SIDES picks others; LAST is the last.
seconds=${1:-80}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-attn6
export PYTHONPATH="$PWD:${PYTHONPATH:-}"
mkdir -p "$scratch"; start=$SECONDS; sides=${SIDES:-queries values trims held tiled tiled_first2 tiled_dims tiled_nomag stamped_tiled}; last=${LAST:-tiled}
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
make_side() {  # NAME
  side=$1; rm -rf "$scratch/$side"; mkdir -p "$scratch/$side"
  tar -xf "$scratch/tree.tar" -C "$scratch/$side" || return 1
  base=${side#stamped_}; patch=${base#*_}; base=${base%%_*}; folder=$scratch/$side/solutions/dsa_attention
  rm -f "$folder"/*.cu*; tar -xf "$lab/$base.tar" -C "$scratch/$side" || return 1
  [ "$patch" = "$base" ] || (cd "$folder" && python3 "$lab/variants/$patch.py") || return 1
  case $side in stamped_*) (cd "$folder" && python3 "$lab/variants/stamped.py") || return 1;; esac
  [ -f "$folder/attend.cu" ]
}
pack='from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "dsa_attention", None).text)'
for side in $sides; do
  (make_side "$side" || echo "$side: not made"
  (cd "$scratch/$side" && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" > "$scratch/$side.json") || echo "$side: not packed") &
done
python3 -c "$pack" > "$scratch/main.json" || exit 1
wait
for side in main $sides; do echo "$side $(sha256sum < "$scratch/$side.json" | cut -c1-12) $(wc -c < "$scratch/$side.json") bytes"; done
export TVM_FFI_CACHE_DIR=${TVM_FFI_CACHE_DIR:-$scratch/ffi}
mkdir -p "$TVM_FFI_CACHE_DIR"
for side in main $sides; do  # builds, side by side: one folder takes one builder at a time
  TVM_FFI_CACHE_DIR="$scratch/ffi-$side" timeout 200 python3 "$lab/lab.py" "$scratch" build "$side" > "$scratch/build-$side.txt" 2>&1 &
done
tools=$(PYTHONPATH=solutions/common python3 -c 'import toolkit; print(toolkit.find_toolkit((12, 1)).folder + "/bin/nvcc", toolkit.host_compiler())')
nvcc=${tools% *}; host=${tools##* }; flags="-std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -ccbin $host -Xcompiler -fPIC -shared"
"$nvcc" $flags "$lab/floors.cu" -o "$scratch/floors.so" > "$scratch/floors.txt" 2>&1 &
"$nvcc" $flags -I"$scratch/$last/solutions/dsa_attention" -I"$scratch/$last/solutions/common" "$lab/micro.cu" -o "$scratch/micro.so" > "$scratch/micro.txt" 2>&1 &
wait
grep -hE "error" "$scratch/floors.txt" "$scratch/micro.txt"
cp "$scratch"/ffi-*/*.so "$TVM_FFI_CACHE_DIR/" 2>/dev/null
for side in main $sides; do tail -n 1 "$scratch/build-$side.txt" | cut -c1-200; done
timeout -k 5 40 python3 "$lab/lab.py" "$scratch" floors 2>&1 | tail -n 40 | cut -c1-420
echo "floors $((SECONDS - start)) s after the start"
fit=""; parts=4
for side in $sides; do  # checks, cases and sides side by side: a kernel that hangs is killed with its process
  case $side in stamped*|queries|values|trims|held|*_nomag) continue;; esac  # steps on the way are timed only
  for part in $(seq 0 $((parts - 1))); do
    (OMP_NUM_THREADS=2 OPENBLAS_NUM_THREADS=2 timeout -k 5 60 python3 "$lab/lab.py" "$scratch" check "$side" "$part" "$parts" > "$scratch/check-$side-$part.txt" 2>&1; echo $? > "$scratch/check-$side-$part.rc") &
  done
done
wait
for side in $sides; do
  case $side in stamped*) continue;; queries|values|trims|held|*_nomag) fit="$fit $side"; continue;; esac
  bad=0
  for part in $(seq 0 $((parts - 1))); do
    rc=$(cat "$scratch/check-$side-$part.rc")
    if [ "$rc" = 0 ]; then grep "cases," "$scratch/check-$side-$part.txt"; else
      bad=1; echo "$side part $part: FAILED, rc $rc (124, 137: it hung in the case named last)"; tail -n 7 "$scratch/check-$side-$part.txt" | cut -c1-240; fi
  done
  [ "$bad" = 0 ] && fit="$fit $side"
  [ "$bad" = 1 ] && [ -n "${TIME_WRONG-1}" ] && ! grep -qE '^(124|137)$' "$scratch"/check-"$side"-*.rc && { fit="$fit $side"; echo "$side: timed all the same, WRONG above"; }
done
base=main; for side in $fit; do cmp -s "$scratch/main.json" "$scratch/$side.json" && base=""; done  # timed once
echo "checked $((SECONDS - start)) s after the start"
for side in $sides; do
  case $side in stamped*) timeout -k 5 40 python3 "$lab/lab.py" "$scratch" stamps "$side" 2>&1 | tail -n 60 | cut -c1-420;; esac
done
echo "stamped $((SECONDS - start)) s after the start"
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left > 20 ? left : 20)) python3 "$lab/lab.py" "$scratch" time "$((left > 25 ? left - 5 : 20))" $base $fit 2>&1 | tee "${OUT:-$scratch}/dsa_attention.txt" | tail -c 9000
[ -n "${OUT:-}" ] && cat "$scratch"/check-*.txt "$scratch"/build-*.txt > "$OUT/dsa_attention_details.txt"
echo "timed $((SECONDS - start)) s after the start"
left=$((seconds - (SECONDS - start)))
if [ "$left" -gt 45 ]; then
  echo "GPU tests of $last"
  cd "$scratch/$last" && PYTHONPATH="$scratch/$last:$PYTHONPATH" timeout -k 5 "$left" python3 -m pytest -q -x -p no:cacheprovider tests/gpu/test_dsa_attention.py -k whole 2>&1 | tail -12
else
  echo "GPU tests: skipped, $left s left"
fi
