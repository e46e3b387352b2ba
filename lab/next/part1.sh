# 575 s: gdn_prefill's next version(s): tests and sanitizers side by side with what else lacks a verdict, then records
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); T=215; Q="python3 -m pytest -q -p no:cacheprovider"
side /tmp/land tests_gdn1 $T $Q tests/gpu/test_gdn_prefill.py -k "not (segments or seams or norm_2 or awkward or overlap or borders)"
side /tmp/land tests_gdn2 $T $Q tests/gpu/test_gdn_prefill.py -k "segments or seams or norm_2 or awkward or overlap or borders"
side /tmp/land sane_gdn1 $T python3 .gpu/sane.py sanitize gdn_prefill --tool racecheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_gdn2 $T python3 .gpu/sane.py sanitize gdn_prefill --tool initcheck --workloads 6f1ad833
side /tmp/land sane_gdn3 $T python3 .gpu/sane.py sanitize gdn_prefill --tool memcheck --workloads 6f1ad833
side /tmp/land sane_gdn4 $T python3 .gpu/sane.py sanitize gdn_prefill --tool synccheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_attn1 $T python3 .gpu/sane.py sanitize dsa_attention --tool memcheck --workloads 0c23b10c,564007ac
side /tmp/land sane_attn2 $T python3 .gpu/sane.py sanitize dsa_attention --tool initcheck --workloads 0c23b10c,564007ac
side /tmp/land audit_gdn $T python3 .gpu/par.py audit gdn_prefill --record --commit $L
(cd /tmp/land; python3 - > /tmp/halves <<'P'
import json,pathlib
rows=[json.loads(l)["workload"] for p in pathlib.Path("workloads/moe").glob("*.jsonl") for l in open(p)]
rows.sort(key=lambda w:w["axes"]["seq_len"]); ids=[w["uuid"][:8] for w in rows]
print(",".join(ids[0::2])); print(",".join(ids[1::2]))
P
)
side /tmp/land replay_a $T python3 .gpu/par.py replay moe --workloads $(sed -n 1p /tmp/halves) --trials 100 --limit-s 195 --commit $L
side /tmp/land replay_b $T python3 .gpu/par.py replay moe --workloads $(sed -n 2p /tmp/halves) --trials 100 --limit-s 195 --commit $L
wait; for n in gdn1 gdn2; do failed side_tests_$n 8; done; keep; say sides; grep -h "errors" $O/side_sane*.txt | cut -c1-200
at /tmp/land; mkdir -p traces/nvidia-h200; cp /tmp/side_audit_gdn/results/audit/gdn_prefill.json results/audit/
for n in a b; do cat /tmp/side_replay_$n/traces/nvidia-h200/moe.replay.ndjson >> traces/nvidia-h200/moe.replay.ndjson; done
run gdn_evaluate 60 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $L; tail -2 $O/gdn_evaluate.txt | head -1; records a
run replay_record 40 python3 -m harness replay moe --trials 100 --resume --record --limit-s 1 --commit $L; tail -3 $O/replay_record.txt | cut -c1-200; records a
run gdn_profile 170 python3 -m harness profile gdn_prefill --record --commit $L; records a
run gdn_profile2 40 python3 -m harness profile gdn_prefill --workloads 6f1ad833,9a5d694b --commit $L
run gdn_shapes $(($(left)-8)) python3 -m tests.shapes gdn_prefill --commit $L; records a; tail -3 $O/gdn_shapes.txt | cut -c1-200
