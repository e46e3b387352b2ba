# evidence: evaluate, timers, shapes, stamps, compare, profile
[ -d /tmp/land ] || overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); at /tmp/land
[ -f /tmp/side_audit_gdn/results/audit/gdn_prefill.json ] && cp /tmp/side_audit_gdn/results/audit/gdn_prefill.json results/audit/
run gdn_evaluate 60 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $L; tail -2 $O/gdn_evaluate.txt | head -1; records a
run timers 40 python3 -m harness timers gdn_prefill --record --commit $L; records a
run shapes 70 python3 -m tests.shapes gdn_prefill --commit $L; records a; tail -3 $O/shapes.txt | cut -c1-200
if [ -f /tmp/kn/lab-gdn10/stamped.built ]; then export PYTHONPATH=$PYTHONPATH:$HERE/.gpu/gdn10; mkdir -p $O/kit; OUT=$O/kit run gdn10 40 python3 -W ignore $HERE/.gpu/gdn10/lab.py run 36 /tmp/kn/lab-gdn10; at /tmp/land; fi
run profile 130 python3 -m harness profile gdn_prefill --workloads 6f1ad833,9a5d694b --record --commit $L; cp -r results/profiles $O/profiles_named; records a
run profile_default 130 python3 -m harness profile gdn_prefill --record --commit $L; records a
run compare $(($(left)-5)) python3 -m harness compare ours peers gdn_prefill --rounds 6 --record --commit $L; tail -4 $O/compare.txt | cut -c1-200; records a
