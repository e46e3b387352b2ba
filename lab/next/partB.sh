# 595 s: comparison of moe to its end, the search of dsa_indexer, then the comparison of the long room with FlashInfer's selection
[ -d /tmp/land ] || overlay /tmp/land land; at /tmp/land; L=$(cat $HERE/.gpu/sha_land)
run moe_compare 130 python3 -m harness compare ours peers moe --rounds 6 --resume --record --commit $L --exit-zero; records c; tail -8 $O/moe_compare.txt | cut -c1-200
run tune 390 python3 -m harness tune dsa_indexer --rounds 4 --candidates 12 --sweeps 3 --budget-s 330 --commit $L; records c; tail -12 $O/tune.txt | cut -c1-200
