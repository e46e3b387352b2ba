overlay /tmp/b/moe tiles5; at /tmp/b/moe; rm -f solutions/common/fp8_products_128.cuh
run moe_tests 90 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_moe.py; rc=$?; grep -E "^(FAILED|ERROR)" $O/b/moe_tests.txt | cut -c1-200 | head -20
run moe_evaluate 40 python3 -m harness evaluate moe --workloads all --record --commit $(cat $HERE/.gpu/sha_tiles5); cat $O/b/moe_evaluate.txt; records moe5
overlay /tmp/b/land prefill6; at /tmp/b/land
run prefill_evaluate 60 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $(cat $HERE/.gpu/sha_prefill6); tail -5 $O/b/prefill_evaluate.txt; records prefill
run prefill_tests 130 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_gdn_prefill.py; grep -E "^(FAILED|ERROR)" $O/b/prefill_tests.txt | cut -c1-200 | head
if [ $rc != 0 ]; then run moe4_evaluate 35 python3 -m harness evaluate moe --workloads all --record --commit $(cat $HERE/.gpu/sha_tiles4); cat $O/b/moe4_evaluate.txt; records moe4; fi
overlay /tmp/b/long long6; at /tmp/b/long
run long_tests 70 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_dsa_indexer_prefill.py; grep -E "^(FAILED|ERROR)" $O/b/long_tests.txt | cut -c1-200 | head
at /tmp/b/land
[ $rc != 0 ] && run moe4_tests 60 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_moe.py
at $HERE
[ $(left) -gt 40 ] && run moe_lab $(($(left)-8)) bash .gpu/lab/tiles5/run.sh $(($(left)-14)); cat $O/b/moe_lab.txt | tail -c 7000
