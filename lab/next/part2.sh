# 570 s, in the tree of part1 (records of part1 copied into land first): profiles, shapes, comparison, timers
overlay /tmp/land land; at /tmp/land; L=$(cat $HERE/.gpu/sha_land)
run gdn_profile 170 python3 -m harness profile gdn_prefill --record --commit $L; records b
run long_profile 90 python3 -m harness profile dsa_indexer_prefill --record --commit $L; records b
run gdn_profile2 40 python3 -m harness profile gdn_prefill --workloads 6f1ad833,9a5d694b --commit $L
run moe_shapes 50 python3 -m tests.shapes moe --commit $L; records b; tail -3 $O/moe_shapes.txt | cut -c1-200
run gdn_shapes 150 python3 -m tests.shapes gdn_prefill --commit $L; records b; tail -3 $O/gdn_shapes.txt | cut -c1-200
run moe_compare 70 python3 -m harness compare ours peers moe --rounds 6 --record --commit $L --exit-zero; records b
for r in gdn_decode dsa_indexer moe gdn_prefill dsa_indexer_prefill; do run timers_$r 60 python3 -m harness timers $r --record --commit $L; records b; done
