# correctness of moe's next version (land = it): 160 s
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); T=270; Q="python3 -m pytest -q -p no:cacheprovider"
side /tmp/land tests_moe1 $T $Q tests/gpu/test_moe.py
side /tmp/land tests_moe2 $T $Q tests/gpu/test_moe_routing.py tests/unit/test_moe.py -k "not interpreter"
for t in memcheck initcheck racecheck synccheck; do side /tmp/land sane_$t $T python3 .gpu/sane.py sanitize moe --tool $t --workloads e05c6c03,8f1ff9f1,1a4c6ba1; done
side /tmp/land audit_moe $T python3 .gpu/par.py audit moe --record --commit $L
wait; for n in moe1 moe2; do failed side_tests_$n 12; done; keep; say sides; for f in $O/side_sane*.txt; do echo $f; grep -vE "^ *$" $f | tail -5 | cut -c1-200; done
cp /tmp/side_audit_moe/results/audit/moe.json /tmp/land/results/audit/; at /tmp/land; records a
