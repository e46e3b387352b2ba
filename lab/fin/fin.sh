# bash lab/fin/fin.sh SECONDS: prefill_new check -> choose -> record gdn_prefill, moe -> attention lab with what is left
. .gpu/setup
LIMIT=${1:-335}; start=$SECONDS; O=$OUT; HERE=$PWD; SHA=$(cat .gpu/sha)
left() { echo $((LIMIT-(SECONDS-start))); }
say() { echo "== $* [$((SECONDS-start)) s]"; }
# attention: builds in the background, on idle cores
lab=$HERE/lab/dsa_attention; scratch=/tmp/lab-attn; mkdir -p $scratch
tar --exclude=./.git --exclude=./.gpu --exclude=./blob --exclude=./.venv --exclude=./results -cf $scratch/tree.tar .
pack='from harness.config import load_workspace; from harness.packing import pack; print(pack(load_workspace(), "dsa_attention", None).text)'
make_side() {
  rm -rf $scratch/$1; mkdir -p $scratch/$1; tar -xf $scratch/tree.tar -C $scratch/$1; rm -f $scratch/$1/solutions/dsa_attention/*.cu*
  cp -r $lab/tree/. $scratch/$1/
  if [ -d "$lab/variants/$1" ]; then rm -f $scratch/$1/solutions/dsa_attention/*.cu*; cp -r $lab/variants/$1/. $scratch/$1/; fi
  if [ -f "$lab/variants/$1.py" ]; then (cd $scratch/$1/solutions/dsa_attention && python3 $lab/variants/$1.py); fi
}
(python3 -c "$pack" > $scratch/main.json
 for side in base wide stamped; do make_side $side; (cd $scratch/$side && PYTHONPATH="$scratch/$side:$PYTHONPATH" python3 -c "$pack" > $scratch/$side.json) || echo "$side: not packed"; done
 for side in main base wide stamped; do timeout 200 python3 $lab/lab.py $scratch build $side > $scratch/build-$side.txt 2>&1 & done; wait) > $scratch/prepare.txt 2>&1 &
attn=$!
(cp -r $HERE /tmp/moe-new; cp -r $HERE/lab/moe_new/tree/. /tmp/moe-new/; cd /tmp/moe-new; PYTHONPATH="${PYTHONPATH%%:*}:/tmp/moe-new" timeout 120 python3 $HERE/lab/moe_new/lab.py build > /tmp/moe-build.txt 2>&1) &
moeb=$!
say prefill_new
if [ -f lab/gdn_prefill_new/run.sh ]; then
  mkdir -p $O/pn; OUT=$O/pn timeout -k 5 95 bash lab/gdn_prefill_new/run.sh 85 > $O/prefill_new.txt 2>&1; rc=$?
  echo "rc $rc"; tail -c 5000 $O/prefill_new.txt
  if [ $rc = 0 ] && [ -f .gpu/sha_new ]; then echo "TAKEN"; cp -r lab/gdn_prefill_new/tree/. .; SHA=$(cat .gpu/sha_new); fi
fi
say moe_new
wait $moeb; tail -2 /tmp/moe-build.txt
(cd /tmp/moe-new; PYTHONPATH="${PYTHONPATH%%:*}:/tmp/moe-new" timeout -k 5 45 python3 $HERE/lab/moe_new/lab.py check small 0 > $O/moe_new.txt 2>&1); rc=$?; grep -v "^#" $O/moe_new.txt | grep -v "^ok" | tail -20 | cut -c1-300; echo "rc $rc"
if [ $rc = 0 ] && grep -q "== small" $O/moe_new.txt && ! grep -q FAIL $O/moe_new.txt && [ -f .gpu/sha_moe ]; then echo "MOE TAKEN"; cp -r lab/moe_new/tree/. .; MSHA=$(cat .gpu/sha_moe); else MSHA=$SHA; fi
say evaluate gdn_prefill at $SHA
timeout 130 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $SHA > $O/e_prefill.txt 2>&1; tail -4 $O/e_prefill.txt
say evaluate moe
[ $(left) -gt 60 ] && timeout 130 python3 -m harness evaluate moe --workloads all --record --commit $MSHA > $O/e_moe.txt 2>&1; tail -4 $O/e_moe.txt
tar czf $O/tree.tgz results/runs/nvidia-h200/gdn_prefill results/runs/nvidia-h200/moe results/latest traces/nvidia-h200/gdn_prefill.jsonl traces/nvidia-h200/moe.jsonl 2>/dev/null
say attention
wait $attn; cat $scratch/prepare.txt
for side in base wide; do
  [ $(left) -gt 25 ] && { timeout -k 5 40 python3 $lab/lab.py $scratch check $side > $scratch/check-$side.txt 2>&1; echo "$side rc $?"; tail -n 8 $scratch/check-$side.txt | cut -c1-220; }
done
[ $(left) -gt 20 ] && timeout -k 5 20 python3 $lab/lab.py $scratch stamps stamped 2>&1 | tail -n 30 | cut -c1-200
[ $(left) -gt 20 ] && timeout -k 5 $(left) python3 $lab/lab.py $scratch time $(($(left)-8)) main base wide > $O/attn_time.txt 2>&1; tail -c 4500 $O/attn_time.txt
cat $scratch/check-*.txt $scratch/build-*.txt > $O/attn_details.txt 2>/dev/null
say done
