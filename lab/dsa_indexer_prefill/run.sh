# . .gpu/setup; bash lab/dsa_indexer_prefill/run.sh SECONDS [SUBCOMMAND...]      from a repository root
limit=${1:-540}; shift
parts=${*:-layout check time hostile}
lab=$PWD/lab/dsa_indexer_prefill; began=$(date +%s)
tree=/tmp/tree-prefill; out=/tmp/lab-prefill; export RESULTS=${OUT:-}
rm -rf $tree; mkdir -p $tree $out; tar cf - --exclude=.git --exclude=.venv --exclude=.gpu . | tar xf - -C $tree
cp -r $lab/tree/. $tree
export PYTHONPATH=$tree:$PYTHONPATH
remains() { echo $(( limit - ($(date +%s) - began) )); }
timeout 240 python3 $lab/variants.py $tree $out base debug math weigh unordered stages4 lag4 wide debug_unordered 2>&1 | tee $out/build.txt
grep -h -E "C75|[1-9][0-9]* bytes spill" $out/base.log | head -5 >> $out/build.txt
for part in $parts; do
  left=$(remains)
  if [ $left -lt 25 ]; then echo "$part: skipped, $left s left" | tee $out/$part.txt; continue; fi
  case $part in layout) share=60 ;; check) share=$(( left * 45 / 100 )) ;; time) share=$(( left * 65 / 100 )) ;; *) share=$(( left - 5 )) ;; esac
  [ $share -gt $left ] && share=$left
  LAB_SECONDS=$(( share - 5 )) timeout -k 5 $share python3 $lab/lab.py $part $tree $out > $out/$part.txt 2>&1
  code=$?
  [ $code -ne 0 ] && echo "$part: ended with $code ($([ $code -ge 124 ] && echo 'a hang, or out of time' || echo 'an error'))" >> $out/$part.txt
  tail -c 6000 $out/$part.txt
  [ $part = layout ] && [ $code -ge 124 ] && { echo "layout hangs; once more without the order of the warpgroups"; LAB_DEBUG=debug_unordered LAB_SECONDS=25 timeout -k 5 30 python3 $lab/lab.py layout $tree $out 2>&1 | sed 's/^/unordered: /' | tee -a $out/layout.txt; parts=layout; break; }
done
[ -n "$RESULTS" ] && { cp $out/build.txt $RESULTS/build.txt; for part in $parts; do cp $out/$part.txt $RESULTS/ 2>/dev/null; done; }
echo "=== summary, $(( $(date +%s) - began )) s"
grep -v ok $out/build.txt
for part in $parts; do grep -h -E "^(unordered: )?(layout|check|time|memory|hostile)|WRONG|Error|ended|skipped|hang" $out/$part.txt | cut -c1-700; done | tail -c 11000
