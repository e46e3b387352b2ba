# 480 s: the search of dsa_indexer; comparison of the long room where FlashInfer's wheels are carried; why moe's direct outputs gained less
overlay /tmp/land land; at /tmp/land; L=$(cat $HERE/.gpu/sha_land)
run tune 400 python3 -m harness tune dsa_indexer --rounds 4 --candidates 12 --sweeps 3 --budget-s 340 --commit $L; records c; tail -12 $O/tune.txt | cut -c1-200
cd $HERE; run moe9 60 bash .lab/moe9/run.sh 50
