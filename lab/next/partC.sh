# 600 s: gdn_prefill's next version, attention's build for racecheck: correctness side by side, then records
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); T=200; Q="python3 -m pytest -q -p no:cacheprovider"
mkdir -p /tmp/newtool; python3 -m zipfile -e $HERE/.gpu/tool/*.whl /tmp/newtool; find /tmp/newtool -name "compute-sanitizer" -o -name "*.so*" -o -name "TreeLauncher*" | xargs chmod +x; NEW=$(dirname $(find /tmp/newtool -path "*bin/compute-sanitizer" | head -1))
side /tmp/land tests_gdn1 $T $Q tests/gpu/test_gdn_prefill.py -k "not (segments or seams or norm_2 or awkward or overlap or borders)"
side /tmp/land tests_gdn2 $T $Q tests/gpu/test_gdn_prefill.py -k "segments or seams or norm_2 or awkward or overlap or borders"
side /tmp/land sane_gdn1 $T python3 .gpu/sane.py sanitize gdn_prefill --tool racecheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_gdn1new $T env PATH=$NEW:$PATH python3 .gpu/sane.py sanitize gdn_prefill --tool racecheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_gdn2 $T python3 .gpu/sane.py sanitize gdn_prefill --tool initcheck --workloads 6f1ad833
side /tmp/land sane_gdn3 $T python3 .gpu/sane.py sanitize gdn_prefill --tool memcheck --workloads 6f1ad833
side /tmp/land sane_gdn4 $T python3 .gpu/sane.py sanitize gdn_prefill --tool synccheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_attn1 $T python3 .gpu/sane.py sanitize dsa_attention --tool racecheck --workloads 0c23b10c,564007ac
side /tmp/land sane_attn1new $T env PATH=$NEW:$PATH python3 .gpu/sane.py sanitize dsa_attention --tool racecheck --workloads 0c23b10c,564007ac
side /tmp/land audit_gdn $T python3 .gpu/par.py audit gdn_prefill --record --commit $L
side /tmp/land audit_attn $T python3 .gpu/par.py audit dsa_attention --record --commit $L
(cd /tmp/land; python3 - > /tmp/halves <<'P'
import json,pathlib
rows=[json.loads(l)["workload"] for p in pathlib.Path("workloads/moe").glob("*.jsonl") for l in open(p)]
rows.sort(key=lambda w:w["axes"]["seq_len"]); ids=[w["uuid"][:8] for w in rows]
print(",".join(ids[0::2])); print(",".join(ids[1::2]))
P
)
side /tmp/land replay_a $T python3 .gpu/par.py replay moe --workloads $(sed -n 1p /tmp/halves) --trials 100 --limit-s 185 --commit $L
side /tmp/land replay_b $T python3 .gpu/par.py replay moe --workloads $(sed -n 2p /tmp/halves) --trials 100 --limit-s 185 --commit $L
wait; for n in gdn1 gdn2; do failed side_tests_$n 8; done; keep; say sides; grep -hE "errors|verdict" $O/side_sane*.txt | cut -c1-200
at /tmp/land; mkdir -p traces/nvidia-h200; cp /tmp/side_audit_gdn/results/audit/gdn_prefill.json /tmp/side_audit_attn/results/audit/dsa_attention.json results/audit/
for n in a b; do cat /tmp/side_replay_$n/traces/nvidia-h200/moe.replay.ndjson >> traces/nvidia-h200/moe.replay.ndjson; done
run gdn_evaluate 60 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $L; tail -2 $O/gdn_evaluate.txt | head -1; records a
run attn_evaluate 40 python3 -m harness evaluate dsa_attention --workloads all --record --commit $L; tail -2 $O/attn_evaluate.txt | head -1; records a
run replay_record 30 python3 -m harness replay moe --trials 100 --resume --record --limit-s 1 --commit $L; tail -3 $O/replay_record.txt | cut -c1-200; records a
for r in gdn_prefill dsa_attention; do run timers_$r 60 python3 -m harness timers $r --record --commit $L; records a; done
run gdn_shapes 60 python3 -m tests.shapes gdn_prefill --commit $L; records a; tail -3 $O/gdn_shapes.txt | cut -c1-200
run gdn_profile $(($(left)-5)) python3 -m harness profile gdn_prefill --record --commit $L; records a
