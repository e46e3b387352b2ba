[ -d /tmp/land ] || overlay /tmp/land land; L=$(cat $HERE/.gpu/sha_land); at /tmp/land
run gdn_evaluate 130 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $L; tail -2 $O/gdn_evaluate.txt | head -1; records a
run shapes 130 python3 -m tests.shapes gdn_prefill --commit $L; records a; tail -3 $O/shapes.txt | cut -c1-200
