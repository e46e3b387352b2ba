# moe's stream: trees of .gpu/v/*.tgz (solutions/) and old in turns, then stamps of $STAMPED (a name of these)
overlay /tmp/old old; S=$HERE/.gpu; rm -rf /tmp/mab; mkdir -p /tmp/mab; export PYTHONUNBUFFERED=1; at /tmp/old
(timeout 120 python3 $S/moe12/mab.py build old /tmp/old /tmp/mab > $O/mab_old.txt 2>&1 || { echo old NOT BUILT; tail -3 $O/mab_old.txt; }) &
names=old; for f in $S/v/*.tgz; do n=$(basename $f .tgz); names="$names $n"; cp -r /tmp/old /tmp/v_$n; rm -rf /tmp/v_$n/solutions; tar xzf $f -C /tmp/v_$n; (timeout 120 python3 $S/moe12/mab.py build $n /tmp/v_$n /tmp/mab > $O/mab_$n.txt 2>&1 || { echo $n NOT BUILT; tail -3 $O/mab_$n.txt; }) & done; wait; say built
export PYTHONPATH=$PYTHONPATH:$S/moe12
run mab 60 python3 -W ignore $S/moe12/mab.py run 45 /tmp/mab $names; cat $O/mab.txt
for n in $STAMPED; do at /tmp/v_$n; OUT=$O run stamps_$n 100 bash $S/moe12/run.sh; grep -vE "^$" $O/stamps_$n.txt | tail -75; done
