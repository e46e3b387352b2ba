# bash FOLDER/run.sh SECONDS, in a repository root with `. .gpu/setup` sourced; about 150 s for all of it. gdn_prefill's native route, as the checkout
# has it: every variant of patch.py is built side by side, then (lab.py) stage tables from clock stamps, most important first, then knock-outs.
# Ends after SECONDS. $OUT: gdn10.txt, as it grows; gdn10-stamps.npz, a middle call's stamps of each shape (`lab.py show` prints the tables again).
# ONLY="plain stamped base": these variants alone. BUILD_ONLY=1: only the builds.
seconds=${1:-150}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-gdn10; start=$SECONDS
export PYTHONPATH="$PWD:$lab:${PYTHONPATH:-}" PYTHONUNBUFFERED=1; rm -rf "$scratch"; mkdir -p "$scratch"
python=${PYTHON:-python3}
variants=${ONLY:-$("$python" -c 'import sys; sys.path.insert(0, sys.argv[1]); import patch; print(*patch.VARIANTS)' "$lab")} || exit 1
limit=$((seconds * 2 / 5 < 70 ? seconds * 2 / 5 : 70)); [ -n "${BUILD_ONLY:-}" ] && limit=$seconds
printf '%s\n' $variants | timeout -k 2 $limit xargs -P "${JOBS:-16}" -I V sh -c '"$0" "$1" build V "$2" > "$2/V.txt" 2>&1 || { echo "V: NOT BUILT"; tail -n 4 "$2/V.txt" | cut -c1-300; }' "$python" "$lab/lab.py" "$scratch"
echo "$(ls "$scratch" | grep -c '\.built$') of $(echo $variants | wc -w) variants built $((SECONDS - start)) s after the start"
[ -n "${BUILD_ONLY:-}" ] && exit 0
[ -f "$scratch/plain.built" ] && [ -f "$scratch/stamped.built" ] || { echo "without plain or stamped there is nothing to show"; exit 1; }
left=$((seconds - (SECONDS - start)))
timeout -k 3 "$left" "$python" -W ignore "$lab/lab.py" run $((left - 2)) "$scratch" 2>&1 | tee "${OUT:-$scratch}/gdn10.txt"; rc=${PIPESTATUS[0]}
echo "ended $((SECONDS - start)) s after the start, rc $rc"; exit "$rc"
