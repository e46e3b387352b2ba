# bash FOLDER/run.sh SECONDS, in a repository root. Builds the checkout's native route of dsa_indexer_prefill (main) and the
# one of long4.tar laid over it (long4), proves long4 exact by scores of its debug build, and times both, each kernel by CUPTI.
# Variants of long4: nostore (no candidates are stored), noweigh (loads and products alone), maxima and sums (the positive part
# by one unit alone; both are right), paired (two warpgroups at a time multiply, in turns). SIDES picks others. NCU=1: at the end a profile of the filtering launch.
seconds=${1:-420}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-long4; start=$SECONDS
sides=${SIDES:-main_base long4_base long4_debug long4_nostore long4_noweigh long4_maxima long4_sums long4_paired}
rm -rf "$scratch"; mkdir -p "$scratch/main" "$scratch/long4"
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf "$scratch/tree.tar" .
tar -xf "$scratch/tree.tar" -C "$scratch/main"; tar -xf "$scratch/tree.tar" -C "$scratch/long4"
rm -f "$scratch"/long4/solutions/dsa_indexer_prefill/*.cu*; tar -xf "$lab/long4.tar" -C "$scratch/long4" || exit 1
for side in $sides; do
  (timeout 240 python3 "$lab/lab.py" build "$scratch/${side%%_*}" "$scratch" "$side" > "$scratch/$side.log" 2>&1 || echo "$side: build FAILED: $(tail -n 8 "$scratch/$side.log")") &
done; wait
grep -hE "[1-9][0-9]* bytes spill|C75" "$scratch"/long4_base.log | head -4
echo "built $((SECONDS - start)) s after the start"
cd "$scratch/long4" || exit 1
export PYTHONPATH="$scratch/long4:$PYTHONPATH"
left() { echo $((seconds - (SECONDS - start))); }
share=$(($(left) * 45 / 100))
LAB_SECONDS=$((share - 5)) timeout -k 5 $share python3 "$lab/lab.py" check "$scratch" > "$scratch/check.txt" 2>&1; rc=$?
[ $rc != 0 ] && echo "check: FAILED, rc $rc (124, 137: a hang)" | tee -a "$scratch/check.txt"
tail -n 70 "$scratch/check.txt" | cut -c1-230
echo "checked $((SECONDS - start)) s after the start"
spare=$([ -n "$NCU" ] && echo 45 || echo 0); share=$(($(left) - spare)); [ $share -lt 30 ] && share=30
names=$(echo $sides | tr ' ' '\n' | grep -v debug | tr '\n' ' ')
LAB_SECONDS=$((share - 5)) timeout -k 5 $share python3 "$lab/lab.py" time "$scratch" $names 2>&1 | tee "$scratch/time.txt" | tail -c 9000
if [ -n "$NCU" ]; then  # the launches are: sample, filter, repair; the second call's filter is the fifth score_kernel
  timeout -k 5 90 ncu -f -k regex:score_kernel -s 4 -c 1 --set full --import-source no -o "$scratch/long4_filter" python3 "$lab/lab.py" one "$scratch" long4_base 512 131072 > "$scratch/ncu.log" 2>&1
  ncu -i "$scratch/long4_filter.ncu-rep" --page source --csv > "$scratch/long4_filter.source.csv" 2>/dev/null
  ncu -i "$scratch/long4_filter.ncu-rep" --page details --csv > "$scratch/long4_filter.details.csv" 2>/dev/null
fi
[ -n "${OUT:-}" ] && cp "$scratch"/check.txt "$scratch"/time.txt "$scratch"/*.log "$scratch"/long4_filter.*csv "$OUT" 2>/dev/null
exit 0
