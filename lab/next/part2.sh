# 560 s, records of part1 copied into land first: comparison, timers, profile of the long room, attention's racecheck
overlay /tmp/land land; at /tmp/land; L=$(cat $HERE/.gpu/sha_land)
run moe_compare 75 python3 -m harness compare ours peers moe --rounds 6 --record --commit $L --exit-zero; records b
for r in moe gdn_decode dsa_indexer gdn_prefill dsa_indexer_prefill; do run timers_$r 70 python3 -m harness timers $r --record --commit $L; records b; done
run long_profile 90 python3 -m harness profile dsa_indexer_prefill --record --commit $L; records b
mkdir -p $O/race; run attn_race 175 env OUT=$O/race python3 $HERE/.gpu/race_attn/race.py
