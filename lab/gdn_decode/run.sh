# bash lab/gdn_decode/run.sh SECONDS, in a repository root. Checks and times the native route of
# gdn_decode (tree/), the same with the decay behind the sums (late/), and the checkout's own route.
seconds=${1:-240}; lab=$PWD/lab/gdn_decode; scratch=${TMPDIR:-/tmp}/lab-gdn_decode
mkdir -p "$scratch"; start=$SECONDS
for side in ours late; do
  rm -rf "$scratch/$side"; mkdir -p "$scratch/$side"
  tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf - . | tar -xf - -C "$scratch/$side"
  cp -r "$lab/tree/." "$scratch/$side/"
done
cp -r "$lab/late/." "$scratch/late/"
pack='from harness.config import load_workspace; from harness.packing import pack; import sys; print(pack(load_workspace(), "gdn_decode", sys.argv[1] or None).text)'
python3 -c "$pack" portable > "$scratch/main.json" || exit 1
for side in ours late; do
  (cd "$scratch/$side" && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" "" > "$scratch/$side.json") || exit 1
done
left=$((seconds - (SECONDS - start)))
timeout -k 5 $((left + 20)) python3 "$lab/lab.py" "$scratch" "$left" 2>&1 | tee "${OUT:-$scratch}/gdn_decode.txt" | tail -c 9000
left=$((seconds - (SECONDS - start)))
if [ "$left" -gt 40 ]; then
  cd "$scratch/ours" && PYTHONPATH="$scratch/ours:$PYTHONPATH" timeout -k 5 "$left" python3 -m pytest -q -x -p no:cacheprovider tests/gpu/test_gdn_decode.py 2>&1 | tail -25
else
  echo "GPU tests: skipped, $left s left"
fi
