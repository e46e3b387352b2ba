# bash lab/trust/trust.sh SECONDS: audits of the rooms that lack one of their present content, and moe's replay, side by side
# (correctness alone: nothing here is timed). Brings back results/audit, results/replay, traces in $OUT/trust.tgz.
. .gpu/setup
LIMIT=${1:-560}; start=$SECONDS; HERE=$PWD; SHA=$(cat .gpu/sha); mkdir -p $OUT results/audit results/replay traces/nvidia-h200
left() { echo $((LIMIT-(SECONDS-start))); }
side() {  # name, arguments: in a copy of the tree, with locks of its own
  name=$1; shift; D=/tmp/side_$name; rm -rf $D; cp -r $HERE $D; mkdir -p $D/cache
  (cd $D; export XDG_CACHE_HOME=$D/cache XDG_RUNTIME_DIR=$D/cache PYTHONPATH=${PYTHONPATH%%:*}:$D
   timeout $(($(left)-20)) python3 lab/trust/par.py "$@" > $D/out.txt 2>&1; echo "$name rc $? [$((SECONDS-start)) s]: $(tail -1 $D/out.txt | cut -c1-200)") &
}
for room in ${ROOMS:-gdn_decode gdn_prefill dsa_attention moe dsa_indexer_prefill}; do side audit_$room audit $room --record --commit $SHA; done
wait
half1=$(python3 - <<'P'
import json
rows=[json.loads(l)["workload"]["uuid"][:8] for l in open([p for p in __import__("pathlib").Path("workloads/moe").glob("*.jsonl")][0])]
print(",".join(rows[::2])); print(",".join(rows[1::2]))
P
)
set -- $half1
side moe_a replay moe --workloads $1 --trials ${TRIALS:-100} --limit-s $(($(left)-60)) --commit $SHA
side moe_b replay moe --workloads $2 --trials ${TRIALS:-100} --limit-s $(($(left)-60)) --commit $SHA
wait
for n in moe_a moe_b; do cat /tmp/side_$n/traces/nvidia-h200/moe.replay.ndjson >> traces/nvidia-h200/moe.replay.ndjson; done
cp /tmp/side_audit_*/results/audit/*.json results/audit/
timeout 40 python3 -m harness replay moe --trials ${TRIALS:-100} --resume --record --limit-s 0 --commit $SHA > $OUT/replay_moe.txt 2>&1; tail -4 $OUT/replay_moe.txt
for f in /tmp/side_*/out.txt; do echo "-- $f"; tail -40 $f; done > $OUT/sides.txt
tar czf $OUT/trust.tgz results/audit results/replay traces/nvidia-h200
