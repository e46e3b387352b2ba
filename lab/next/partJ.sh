# .gpu/v/*.tgz against old in turns: LONG cases first, then all sizes; DRAM bytes of $DRAM
overlay /tmp/old old; S=$HERE/.gpu; rm -rf /tmp/ab; mkdir -p /tmp/ab; export GDN9=$S/gdn10 PYTHONUNBUFFERED=1
names="old"; at /tmp/old; export PYTHONPATH=$PYTHONPATH:$S/gdn10
(timeout 80 python3 $S/ab/ab.py build old /tmp/old /tmp/ab > $O/ab_old.txt 2>&1) &
for f in $S/v/*.tgz; do n=$(basename $f .tgz); names="$names $n"; rm -rf /tmp/v_$n; mkdir -p /tmp/v_$n; tar xzf $f -C /tmp/v_$n; (timeout 80 python3 $S/ab/ab.py build $n /tmp/v_$n /tmp/ab > $O/ab_$n.txt 2>&1 || { echo $n NOT BUILT; tail -3 $O/ab_$n.txt; }) & done; wait; say built
EXTRA="65536;16384;32768" CASES="65536/1 32768/1 16384/1" run ab2 40 python3 -W ignore $S/ab/ab.py run 30 /tmp/ab $names; tail -5 $O/ab2.txt
run ab ${AB_S:-90} python3 -W ignore $S/ab/ab.py run ${AB_S:-80} /tmp/ab $names $MORE; grep -E "^(tokens|built|rounds|mean|97/|983|2107/1|3028|4124|5709|8192)" $O/ab.txt
for n in $DRAM; do run dram_$n 40 ncu --clock-control none --cache-control none -k regex:"solve_kernel|scan_kernel" --metrics dram__bytes_read.sum,dram__bytes_write.sum python3 -W ignore $S/ab/dram.py /tmp/ab $n 8192/57 8192/20 5709/2; grep -E "solve_kernel|scan_kernel|dram__" $O/dram_$n.txt | cut -c1-110; done
