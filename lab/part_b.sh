run prefill_lab 260 bash .gpu/lab/prefill4/run.sh 200; prc=$?; cat $O/l/prefill_lab.txt | tail -c 7000
tar xzf .gpu/prefill4.tgz -C .
run prefill_tests 110 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_gdn_prefill.py; grep -E "^(FAILED|ERROR)|passed|failed" $O/l/prefill_tests.txt | tail -12 | cut -c1-200
run prefill_evaluate 80 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $(cat .gpu/sha_prefill4); tail -5 $O/l/prefill_evaluate.txt
mkdir -p traces/nvidia-h200; cp .gpu/keep/moe.replay.ndjson traces/nvidia-h200/
side() { n=$1; from=$2; shift 2; D=/tmp/side_$n; rm -rf $D; cp -r $from $D; mkdir -p $D/cache; (cd $D; export XDG_CACHE_HOME=$D/cache XDG_RUNTIME_DIR=$D/cache PYTHONPATH=$SITE:$D; l=$(left); timeout -s INT -k 5 $((l-8)) python3 .gpu/lab/trust/par.py "$@" > $O/l/side_$n.txt 2>&1; say "$n rc $?: $(tail -1 $O/l/side_$n.txt | cut -c1-150)"; cp $D/results/audit/$n.json $O/l/audit_$n.json 2>/dev/null) & }
[ $(left) -gt 60 ] && {
side gdn_prefill /tmp/g1/tree audit gdn_prefill --record --commit $(cat .gpu/sha_prefill4)
[ -f /tmp/g0/laid ] && side dsa_attention /tmp/g0/tree audit dsa_attention --record --commit $(cat .gpu/sha_attn3)
run replay_moe 90 python3 .gpu/lab/trust/par.py replay moe --trials 100 --resume --record --commit $SHA; tail -5 $O/l/replay_moe.txt
wait; }
[ $(left) -gt 40 ] && { run moe_tests $(( $(left) - 12 )) python3 -m pytest -q -p no:cacheprovider tests/gpu/test_moe.py; grep -E "^(FAILED|ERROR)|passed|failed" $O/l/moe_tests.txt | tail -8 | cut -c1-200; }
