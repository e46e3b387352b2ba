. .gpu/setup
SHA=$(cat .gpu/sha); mkdir -p $OUT; start=$SECONDS; HERE=$PWD; LIMIT=${1:-560}
say() { echo "== $* [$((SECONDS-start)) s]"; }
say racecheck
timeout 100 compute-sanitizer --tool racecheck --error-exitcode 9 python3 lab/indexer/small.py > $OUT/race.txt 2>&1; echo "rc $?"; tail -4 $OUT/race.txt
say evaluate
timeout 200 python3 -m harness evaluate dsa_indexer --workloads all --record --commit $SHA > $OUT/evaluate.txt 2>&1; tail -3 $OUT/evaluate.txt
say shapes
timeout 120 python3 -m tests.shapes dsa_indexer --commit $SHA > $OUT/shapes.txt 2>&1; tail -4 $OUT/shapes.txt
say profile
timeout 120 python3 -m harness profile dsa_indexer --record --commit $SHA > $OUT/profile.txt 2>&1; tail -2 $OUT/profile.txt
say side by side
i=0
side() {  # name, arguments: in a copy of the tree of its own
  name=$1; shift; D=/tmp/side_$name; cp -r $HERE $D; mkdir -p $D/cache
  (cd $D; export XDG_CACHE_HOME=$D/cache XDG_RUNTIME_DIR=$D/cache PYTHONPATH=${PYTHONPATH%%:*}:$D; timeout $((LIMIT-(SECONDS-start)-15)) python3 lab/trust/par.py "$@" > $D/out.txt 2>&1; echo "$name rc $? [$((SECONDS-start)) s]: $(tail -1 $D/out.txt | cut -c1-200)") &
}
R="replay dsa_indexer --commit $SHA --limit-s $((LIMIT-(SECONDS-start)-40))"
side a $R --workloads 03fc111f --trials 10000
side b $R --workloads 70d53807 --trials 10000
side c $R --workloads ed3e595b,d8a73470,2f3b7321 --trials 1000
side d $R --workloads 19e7663d,7f1cd9c2,a52c09bc --trials 1000
side e $R --workloads 27c3374f,6b4b9d2b --trials 1000
side f $R --workloads 3eab2c37,8635db8f --trials 1000
side g audit dsa_indexer --record --commit $SHA
wait
cp /tmp/side_g/results/audit/*.json results/audit/ 2>/dev/null || { mkdir -p results/audit; cp /tmp/side_g/results/audit/*.json results/audit/; }
for n in a b c d e f; do cat /tmp/side_$n/traces/nvidia-h200/dsa_indexer.replay.ndjson >> traces/nvidia-h200/dsa_indexer.replay.ndjson; done
say record
timeout 60 python3 -m harness replay dsa_indexer --workloads ed3e595b,d8a73470,2f3b7321,19e7663d,7f1cd9c2,a52c09bc,27c3374f,6b4b9d2b,3eab2c37,8635db8f --trials 1000 --resume --record --commit $SHA --limit-s 0 > $OUT/r1.txt 2>&1; tail -5 $OUT/r1.txt
timeout 60 python3 -m harness replay dsa_indexer --workloads 03fc111f,70d53807 --trials 10000 --resume --record --commit $SHA --limit-s 0 > $OUT/r2.txt 2>&1; tail -5 $OUT/r2.txt
for n in a b c d e f g; do echo "-- $n"; tail -25 /tmp/side_$n/out.txt; done > $OUT/sides.txt
tar czf $OUT/tree.tgz results traces docs/kernels
say done
