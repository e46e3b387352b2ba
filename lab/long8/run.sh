# bash FOLDER/run.sh SECONDS, in a repository root. Builds main and the steps' tars (cumulative) laid over copies of
# the checkout, proves the last one exact by scores of its debug build, and times all: graphs of several calls, sides in turns.
# main is the checkout's own; nostore: candidates are counted, not stored. Of long sides also watts, clock and joules a call.
seconds=${1:-110}; lab=$(cd "$(dirname "$0")" && pwd); scratch=${TMPDIR:-/tmp}/lab-long8; start=$SECONDS
read -r steps < "$lab/STEPS"; export LAST=${steps##* }
sides=${SIDES:-main_base $(for s in $steps; do echo ${s}_base; done) ${LAST}_debug ${LAST}_nostore ${LAST}_chains ${LAST}_unmeasured}
rm -rf "$scratch"; mkdir -p "$scratch"
mkdir "$scratch/main"; cp -r solutions "$scratch/main"
for step in $steps; do mkdir "$scratch/$step"; tar -xf "$lab/$step.tar" -C "$scratch/$step" || exit 1; done
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results --exclude=./solutions -cf - . | tar -xf - -C "$scratch/$LAST"
for side in $sides; do
  (timeout 100 python3 "$lab/lab.py" build "$scratch/${side%%_*}" "$scratch" "$side" > "$scratch/$side.log" 2>&1 || echo "$side: build FAILED: $(tail -n 8 "$scratch/$side.log")") &
done; wait
grep -HE "[1-9][0-9]* bytes spill|C75" "$scratch"/*_base.log | head -4
echo "built $((SECONDS - start)) s after the start"
cd "$scratch/$LAST" || exit 1
export PYTHONPATH="$scratch/$LAST:$PYTHONPATH"
left() { echo $((seconds - (SECONDS - start))); }
share=$(($(left) * 38 / 100))
LAB_SECONDS=$((share - 5)) timeout -k 5 $share python3 "$lab/lab.py" check "$scratch" > "$scratch/check.txt" 2>&1; rc=$?
[ $rc != 0 ] && echo "check: FAILED, rc $rc (124, 137: a hang)" | tee -a "$scratch/check.txt"
grep -c "exact" "$scratch/check.txt" | sed 's/$/ checks exact; others:/'; grep -v ": exact;" "$scratch/check.txt" | cut -c1-230 | tail -n 20; grep WRONG "$scratch/check.txt" | head
echo "checked $((SECONDS - start)) s after the start"
share=$(left); [ $share -lt 30 ] && share=30
names=$(echo $sides | tr ' ' '\n' | grep -v debug | tr '\n' ' ')
LAB_SECONDS=$((share - 5)) timeout -k 5 $share python3 "$lab/lab.py" time "$scratch" $names 2>&1 | grep -v Warning | tee "$scratch/time.txt" | tail -c 11000
[ -n "${OUT:-}" ] && cp "$scratch"/check.txt "$scratch"/time.txt "$scratch"/*.log "$OUT" 2>/dev/null
exit 0
