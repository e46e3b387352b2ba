# evidence of moe's next version, right behind partO on the same machine (or with its results/audit/moe.json): 35 + 115 + 90 + 65 + 12 + 70 + 230 s
[ -d /tmp/land ] || overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); at /tmp/land
run moe_evaluate 100 python3 -m harness evaluate moe --workloads all --record --commit $L; tail -3 $O/moe_evaluate.txt | head -2; records a
run shapes 130 python3 -m tests.shapes moe --commit $L; records a; tail -3 $O/shapes.txt | cut -c1-200
run profile 110 python3 -m harness profile moe --workloads e05c6c03,8f1ff9f1,5e8dc11c --record --commit $L; records a
run close 60 python3 -m pytest -q -s -p no:cacheprovider tests/gpu/test_moe.py -k how_close; grep -iE "matched" $O/close.txt | head -30
run replay 90 python3 -m harness replay moe --trials 100 --record --limit-s 80 --commit $L; records a
run timers 120 python3 -m harness timers moe --record --commit $L; records a
run compare $(($(left)-6)) python3 -m harness compare ours peers moe --rounds 6 --record --commit $L --exit-zero; tail -8 $O/compare.txt | cut -c1-200; records a
