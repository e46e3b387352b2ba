overlay /tmp/a/long long6; at /tmp/a/long
run long_evaluate 215 python3 -m harness evaluate dsa_indexer_prefill --workloads all --record --commit $(cat $HERE/.gpu/sha_long6); cat $O/a/long_evaluate.txt; records long
overlay /tmp/a/attn attn6; at /tmp/a/attn
run attn_evaluate 40 python3 -m harness evaluate dsa_attention --workloads all --record --commit $(cat $HERE/.gpu/sha_attn6); cat $O/a/attn_evaluate.txt; records attn
run attn_tests $(($(left)-8)) python3 -m pytest -q -p no:cacheprovider tests/gpu/test_dsa_attention.py; grep -E "^(FAILED|ERROR)" $O/a/attn_tests.txt | cut -c1-200 | head
