# . .gpu/setup; bash .gpu/call6.sh SECONDS : one GPU
limit=$1; start=$SECONDS; HERE=$PWD; O=$OUT; SITE=${PYTHONPATH%%:*}; SHA=$(cat .gpu/sha)
left() { echo $((limit-(SECONDS-start))); }
say() { echo "== $* [$((SECONDS-start)) s]"; }
mkdir -p $O/a /tmp/g0 /tmp/g1
tree() { rm -rf $1; mkdir -p $1; tar --exclude=./.git --exclude=./blob -cf - . | tar -xf - -C $1; }
tree /tmp/g0/tree; tree /tmp/g1/tree
tar xf .gpu/lab/attn3/attn3.tar -C /tmp/g0/tree; tar xzf .gpu/prefill4.tgz -C /tmp/g1/tree
run() { name=$1; want=$2; shift 2; l=$(left); [ $l -lt 12 ] && { say "$name skipped"; return 1; }; [ $want -gt $((l-6)) ] && want=$((l-6)); timeout -s INT -k 8 $want "$@" > $O/a/$name.txt 2>&1; rc=$?; say "$name rc $rc: $(tail -1 $O/a/$name.txt | cut -c1-160)"; return $rc; }
at() { cd /tmp/$1/tree; export PYTHONPATH=$SITE:/tmp/$1/tree TMPDIR=/tmp/$1 TVM_FFI_CACHE_DIR=/tmp/$1/ffi FIB_CACHE_PATH=/tmp/$1/fib TRITON_CACHE_DIR=/tmp/$1/triton; }
export OUT=$O/a
(at g1; python3 -c "
from tests.packed import build
build('gdn_prefill')" > /dev/null 2>&1) &
cd $HERE; export PYTHONPATH=$SITE:$HERE
run attn_lab 145 bash .gpu/lab/attn3/run.sh 110; tail -c 6000 $O/a/attn_lab.txt
run prefill_lab 190 bash .gpu/lab/prefill4/run.sh 150; tail -c 5000 $O/a/prefill_lab.txt
(at g0; run attn_evaluate 60 python3 -m harness evaluate dsa_attention --workloads all --record --commit $(cat .gpu/sha_attn3); tail -4 $O/a/attn_evaluate.txt)
(at g1; run prefill_evaluate 70 python3 -m harness evaluate gdn_prefill --workloads all --record --commit $(cat .gpu/sha_prefill4); tail -5 $O/a/prefill_evaluate.txt)
for g in g0 g1; do (cd /tmp/$g/tree; tar czf $O/a/record_$g.tgz results/latest results/runs traces); done
side() { n=$1; from=$2; shift 2; D=/tmp/side_$n; rm -rf $D; cp -r $from $D; mkdir -p $D/cache; (cd $D; export XDG_CACHE_HOME=$D/cache XDG_RUNTIME_DIR=$D/cache PYTHONPATH=$SITE:$D; l=$(left); timeout -s INT -k 5 $((l-8)) "$@" > $O/a/side_$n.txt 2>&1; say "$n rc $?: $(grep -vE '^ *$' $O/a/side_$n.txt | tail -1 | cut -c1-150)"; cp $D/results/audit/*.json $D/results/replay/*.json $D/traces/nvidia-h200/*.replay.ndjson $O/a/ 2>/dev/null) & }
P="python3 .gpu/lab/trust/par.py"
mkdir -p /tmp/keepmoe; cp -r $HERE /tmp/keepmoe/tree; mkdir -p /tmp/keepmoe/tree/traces/nvidia-h200; cp .gpu/keep/moe.replay.ndjson /tmp/keepmoe/tree/traces/nvidia-h200/
(at g0; run attn_tests $(($(left)-10)) python3 -m pytest -q -p no:cacheprovider tests/gpu/test_dsa_attention.py) &
(at g1; run prefill_tests $(($(left)-10)) python3 -m pytest -q -p no:cacheprovider tests/gpu/test_gdn_prefill.py) &
side replay_moe /tmp/keepmoe/tree $P replay moe --trials 100 --resume --record --limit-s $(($(left)-30)) --commit $SHA
[ $(left) -gt 100 ] && { side audit_prefill /tmp/g1/tree $P audit gdn_prefill --record --commit $(cat .gpu/sha_prefill4); side audit_attention /tmp/g0/tree $P audit dsa_attention --record --commit $(cat .gpu/sha_attn3); }
wait
grep -E "^(FAILED|ERROR)|passed|failed" $O/a/attn_tests.txt $O/a/prefill_tests.txt | tail -14 | cut -c1-220
(cd $O && tar czf all.tgz a && split -b 15000000 all.tgz all.tgz.part && rm -rf a all.tgz; ls -la); say end
