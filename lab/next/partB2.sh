at /tmp/land; L=$(cat $HERE/.gpu/sha_land)
run moe_compare 125 python3 -m harness compare ours peers moe --rounds 6 --resume --record --commit $L --exit-zero; records c; tail -8 $O/moe_compare.txt | cut -c1-200
