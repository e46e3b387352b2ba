at /tmp/land; L=$(cat $HERE/.gpu/sha_land)
run gdn_profile2 40 python3 -m harness profile gdn_prefill --workloads 6f1ad833,9a5d694b --commit $L
run attn_shapes 40 python3 -m tests.shapes dsa_attention --commit $L; records a; tail -3 $O/attn_shapes.txt | cut -c1-200
run attn_profile 60 python3 -m harness profile dsa_attention --record --commit $L; records a
run attn_compare 90 python3 -m harness compare ours peers dsa_attention --rounds 6 --record --commit $L --exit-zero; records a; tail -8 $O/attn_compare.txt | cut -c1-200
