# 240 s: evidence of dsa_indexer_prefill (resume: .gpu/resume/traces), then what tensor cores and tiles of moe do without parts of theirs, and gdn_prefill's halves if copies served both
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); cp -r $HERE/.gpu/resume/. /tmp/land/; at /tmp/land
run long_evaluate 70 python3 -m harness evaluate dsa_indexer_prefill --workloads all --record --resume --commit $L; tail -3 $O/long_evaluate.txt | head -2; records a
run long_profile 110 python3 -m harness profile dsa_indexer_prefill --record --commit $L; records a
S=$HERE/.gpu; rm -rf /tmp/mab /tmp/ab; mkdir -p /tmp/mab /tmp/ab; export PYTHONUNBUFFERED=1 GDN9=$S/gdn10 PYTHONPATH=$PYTHONPATH:$S/moe12:$S/gdn10
(timeout 120 python3 $S/moe12/mab.py build old /tmp/land /tmp/mab > $O/mab_old.txt 2>&1) &
for k in k_rows k_weights k_feed k_add k_feed_add k_out; do rm -rf /tmp/v_$k; cp -r /tmp/land /tmp/v_$k; rm -rf /tmp/v_$k/solutions; python3 $S/moe12/knock.py /tmp/land /tmp/v_$k.s $k && mv /tmp/v_$k.s/solutions /tmp/v_$k/ && (timeout 120 python3 $S/moe12/mab.py build $k /tmp/v_$k /tmp/mab > $O/mab_$k.txt 2>&1) & done
for v in plain halves_share states_share; do (timeout 90 python3 $S/ab/ab.py build $v /tmp/land /tmp/ab $v > $O/ab_$v.txt 2>&1) & done; wait; say built
run clocks 40 python3 -W ignore $S/moe12/clocks.py run /tmp/mab old k_rows k_weights k_feed k_add k_feed_add k_out; cat $O/clocks.txt
run wg 60 bash $S/wg/run.sh; cat $O/wg.txt
CASES="8192/20 8192/25 8192/37 8192/57 5709/2 2107/1 4124/15 983/2" run ab 40 python3 -W ignore $S/ab/ab.py run 34 /tmp/ab plain halves_share states_share; cat $O/ab.txt
side /tmp/land audit_long 150 python3 .gpu/par.py audit dsa_indexer_prefill --record --commit $L
side /tmp/land tests_gdn $(($(left)-10)) python3 -m pytest -q -p no:cacheprovider tests/gpu/test_gdn_prefill.py -k keys_of_norm_2; wait; cp /tmp/side_audit_long/results/audit/dsa_indexer_prefill.json results/audit/; failed side_tests_gdn; records a
