run attn_lab 150 bash .gpu/lab/attn3/run.sh 125; cat $O/a/attn_lab.txt | tail -c 6500
tar xf .gpu/lab/attn3/attn3.tar -C .
touch /tmp/g0/laid
run attn_tests 110 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_dsa_attention.py
run attn_evaluate 60 python3 -m harness evaluate dsa_attention --workloads all --record --commit $(cat .gpu/sha_attn3); tail -4 $O/a/attn_evaluate.txt
run decode_tests 60 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_gdn_decode.py
run stages 40 python3 .gpu/lab/gdn_decode/stages.py; cat $O/a/stages.txt
run profile_decode 80 python3 -m harness profile gdn_decode --record --commit $SHA
run shapes_decode 60 python3 -m tests.shapes gdn_decode --commit $SHA
run dirty 40 python3 .gpu/lab/moe/dirty.py; cat $O/a/dirty.txt
run sanitize_decode 60 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_sanitizers.py -k gdn_decode
[ $(left) -gt 90 ] && run tune_decode $(( $(left) - 12 )) python3 -m harness tune gdn_decode --rounds 4 --candidates 8 --sweeps 2 --budget-s $(( $(left) - 75 )) --commit $SHA
