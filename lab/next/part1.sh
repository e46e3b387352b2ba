# 560 s: every GPU test and sanitizer of the four rooms side by side, then records of the two rooms whose text changed, profile of moe
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); T=225; Q="python3 -m pytest -q -p no:cacheprovider"
side /tmp/land sane_attn $T python3 .gpu/sane.py sanitize dsa_attention --tool racecheck --workloads 564007ac
side /tmp/land tests_attn $T $Q tests/gpu/test_dsa_attention.py
side /tmp/land tests_moe $T $Q tests/gpu/test_moe.py tests/gpu/test_moe_routing.py
side /tmp/land tests_gdn1 $T $Q tests/gpu/test_gdn_prefill.py -k "not (segments or seams or norm_2 or awkward or overlap or borders)"
side /tmp/land tests_gdn2 $T $Q tests/gpu/test_gdn_prefill.py -k "segments or seams or norm_2 or awkward or overlap or borders"
side /tmp/land tests_idxp $T $Q tests/gpu/test_dsa_indexer_prefill.py
side /tmp/land sane_moe1 $T python3 .gpu/sane.py sanitize moe --workloads e05c6c03
side /tmp/land sane_moe2 $T python3 .gpu/sane.py sanitize moe --workloads 8f1ff9f1,1a4c6ba1
side /tmp/land sane_gdn $T python3 .gpu/sane.py sanitize gdn_prefill --tool racecheck --workloads 6f1ad833
side /tmp/land sane_gdn2 $T python3 .gpu/sane.py sanitize gdn_prefill --tool racecheck --workloads 9a5d694b
side /tmp/land sane_idxp $T python3 .gpu/sane.py sanitize dsa_indexer_prefill
wait; for n in attn moe gdn1 gdn2 idxp; do failed side_tests_$n 8; done; keep; say sides; grep -h "errors" $O/side_sane*.txt | cut -c1-200
at /tmp/land
run moe_evaluate 45 python3 -m harness evaluate moe --workloads all --record --commit $L; tail -3 $O/moe_evaluate.txt | head -1; records a
run gdn_evaluate 70 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $L; tail -2 $O/gdn_evaluate.txt | head -1; records a
run moe_profile 130 python3 -m harness profile moe --record --commit $L; records a
