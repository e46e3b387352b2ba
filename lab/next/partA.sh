# 560 s: attention's racecheck beside its memcheck and initcheck; comparison, profile of the long room, timers
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land)
side /tmp/land sane_attn1 170 python3 .gpu/sane.py sanitize dsa_attention --tool memcheck --workloads 0c23b10c,564007ac
side /tmp/land sane_attn2 170 python3 .gpu/sane.py sanitize dsa_attention --tool initcheck --workloads 0c23b10c,564007ac
at /tmp/land; mkdir -p $O/race; run attn_race 175 env OUT=$O/race python3 $HERE/.gpu/race_attn/race.py; wait; keep; cat $O/attn_race.txt | cut -c1-260; grep -h errors $O/side_sane*.txt | cut -c1-200
run moe_compare 80 python3 -m harness compare ours peers moe --rounds 6 --record --commit $L --exit-zero; records b
run long_profile 90 python3 -m harness profile dsa_indexer_prefill --record --commit $L; records b
for r in moe dsa_indexer gdn_decode dsa_indexer_prefill; do run timers_$r 70 python3 -m harness timers $r --record --commit $L; records b; done
