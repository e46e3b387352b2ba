# evaluate, shapes, GPU tests, sanitizers of both native paths, profile; then audits and replays side by side
. .gpu/setup
SHA=$(cat .gpu/sha); mkdir -p $OUT; L=$OUT/log.txt; start=$SECONDS
say() { echo "== $* [$((SECONDS-start)) s]" | tee -a $L; }
say evaluate
timeout 200 python3 -m harness evaluate dsa_indexer --workloads all --record --commit $SHA > $OUT/evaluate.txt 2>&1; tail -4 $OUT/evaluate.txt
say shapes
timeout 120 python3 -m tests.shapes dsa_indexer --commit $SHA > $OUT/shapes.txt 2>&1; tail -5 $OUT/shapes.txt
say profile
timeout 120 python3 -m harness profile dsa_indexer --record --commit $SHA > $OUT/profile.txt 2>&1; tail -12 $OUT/profile.txt
say sanitize
for tool in memcheck racecheck initcheck synccheck; do
  (timeout 150 compute-sanitizer --tool $tool --error-exitcode 9 python3 lab/indexer/small.py > $OUT/san_$tool.txt 2>&1; echo "$tool rc $?"; grep -E "SUMMARY|bad|right" $OUT/san_$tool.txt | tail -3) &
done; wait
cat $OUT/san_*.txt > $OUT/sanitize.txt; rm $OUT/san_*.txt
say tests
timeout 120 python3 -m pytest -q tests/gpu/test_dsa_indexer.py > $OUT/tests.txt 2>&1; tail -3 $OUT/tests.txt
tar czf $OUT/tree.tgz results traces docs/kernels 2>/dev/null
say done
