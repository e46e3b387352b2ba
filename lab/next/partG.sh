# correctness of gdn_prefill's present content side by side (one GPU): about 230 s
. $HERE/.gpu/side.sh; overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); T=230; Q="python3 -m pytest -q -p no:cacheprovider"
A="segments or seams or norm_2 or awkward or overlap or borders or dropped or slope or growth or grows"
side /tmp/land tests_gdn1 $T $Q tests/gpu/test_gdn_prefill.py -k "not ($A)"
side /tmp/land tests_gdn2 $T $Q tests/gpu/test_gdn_prefill.py -k "$A"
side /tmp/land sane_gdn1 $T python3 .gpu/sane.py sanitize gdn_prefill --tool racecheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_gdn2 $T python3 .gpu/sane.py sanitize gdn_prefill --tool initcheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_gdn3 $T python3 .gpu/sane.py sanitize gdn_prefill --tool memcheck --workloads 6f1ad833,9a5d694b
side /tmp/land sane_gdn4 $T python3 .gpu/sane.py sanitize gdn_prefill --tool synccheck --workloads 6f1ad833,9a5d694b
side /tmp/land audit_gdn $T python3 .gpu/par.py audit gdn_prefill --record --commit $L
mkdir -p /tmp/kn; (at /tmp/land; BUILD_ONLY=1 JOBS=3 ONLY="plain stamped base" TMPDIR=/tmp/kn bash $HERE/.gpu/gdn10/run.sh 150 > $O/build_kit.txt 2>&1; tail -1 $O/build_kit.txt) &
wait; for n in gdn1 gdn2; do failed side_tests_$n 12; done; keep; say sides; grep -hE "errors|verdict|hazard" $O/side_sane*.txt | cut -c1-200
