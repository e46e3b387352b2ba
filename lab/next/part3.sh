# 590 s: audits and the replay of moe side by side, then the search of dsa_indexer
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); T=210
for r in dsa_attention moe gdn_prefill dsa_indexer_prefill; do side /tmp/land audit_$r $T python3 .gpu/par.py audit $r --record --commit $L; done
(cd /tmp/land; python3 - > /tmp/halves <<'P'
import json,pathlib
rows=[json.loads(l)["workload"] for p in pathlib.Path("workloads/moe").glob("*.jsonl") for l in open(p)]
rows.sort(key=lambda w:w["axes"]["seq_len"]); ids=[w["uuid"][:8] for w in rows]
print(",".join(ids[0::2])); print(",".join(ids[1::2]))
P
)
side /tmp/land replay_a $T python3 .gpu/par.py replay moe --workloads $(sed -n 1p /tmp/halves) --trials 100 --limit-s 190 --commit $L
side /tmp/land replay_b $T python3 .gpu/par.py replay moe --workloads $(sed -n 2p /tmp/halves) --trials 100 --limit-s 190 --commit $L
wait; at /tmp/land; mkdir -p traces/nvidia-h200
for r in dsa_attention moe gdn_prefill dsa_indexer_prefill; do cp /tmp/side_audit_$r/results/audit/$r.json results/audit/; done
for n in a b; do cat /tmp/side_replay_$n/traces/nvidia-h200/moe.replay.ndjson >> traces/nvidia-h200/moe.replay.ndjson; done
run replay_record 40 python3 -m harness replay moe --trials 100 --resume --record --limit-s 1 --commit $L; tail -3 $O/replay_record.txt | cut -c1-200; records c; say sides
run tune $(($(left)-10)) python3 -m harness tune dsa_indexer --rounds 4 --candidates 12 --sweeps 3 --budget-s 300 --commit $L; records c; tail -12 $O/tune.txt | cut -c1-200
