. .gpu/setup
mkdir -p $OUT; cp -r . /tmp/tree; cp -r lab/indexer/tree/. /tmp/tree; cd /tmp/tree; export PYTHONPATH=${PYTHONPATH%%:*}:/tmp/tree
[ -n "$SKIP" ] || (timeout 170 python3 -m pytest -q -x --maxfail=8 tests/gpu/test_dsa_indexer.py -k "whole or native or official" > $OUT/tests.txt 2>&1; tail -60 $OUT/tests.txt | cut -c1-300)
timeout 150 python3 lab/indexer/study2.py 2>&1 | tee $OUT/study.txt
