# gdn-next in turns with main over all sizes; then policies and the version before at the longest sizes
overlay /tmp/old old; overlay /tmp/before before; S=$HERE/.gpu; rm -rf /tmp/ab /tmp/ab2; mkdir -p /tmp/ab /tmp/ab2; export PYTHONUNBUFFERED=1
at /tmp/old; B=$PYTHONPATH
bld() { (GDN9=$S/$1 PYTHONPATH=$B:$S/$1 timeout 70 python3 $S/ab/ab.py build $2 $3 $4 $5 > $O/ab_$2.txt 2>&1 || { echo $2 NOT BUILT; tail -3 $O/ab_$2.txt; }) & }
tar xzf $S/v/next.tgz -C $(mkdir -p /tmp/v_next; echo /tmp/v_next)
bld gdn10 old /tmp/old /tmp/ab; bld gdn10 next /tmp/v_next /tmp/ab
bld gdn10 plain /tmp/old /tmp/ab2 base; for v in no_drops no_kept no_last no_policies; do bld gdn10 $v /tmp/old /tmp/ab2 $v; done; bld gdn9 before /tmp/before /tmp/ab2
wait; say built
export GDN9=$S/gdn10 PYTHONPATH=$B:$S/gdn10
EXTRA="65536;16384" CASES="65536/1 16384/1 8192/1 8192/57 8192/20" run ab2 60 python3 -W ignore $S/ab/ab.py run 45 /tmp/ab2 plain before no_drops no_kept no_last no_policies; tail -12 $O/ab2.txt
run ab 80 python3 -W ignore $S/ab/ab.py run 70 /tmp/ab old next; tail -1 $O/ab.txt; grep -E "^(tokens|built|rounds|134/|97/|294/3|983|2107/1|3028|4124|5709|8192)" $O/ab.txt
