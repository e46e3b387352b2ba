# first call of NEXT.md: . .gpu/setup; bash .gpu/call8.sh 560 part1.sh    (needs .gpu/{next-attn,next-moe,next-gdn,next-long}.tgz and .gpu/sha_*)
for b in attn moe gdn long; do overlay /tmp/$b next-$b; done; tree /tmp/land
side() {  # TREE NAME SECONDS COMMAND: correctness beside others, in a copy, with locks of its own
  T=$1; n=$2; t=$3; shift 3; D=/tmp/side_$n; rm -rf $D; cp -r $T $D; mkdir -p $D/cache $D/tmp
  (cd $D; export LOGS=$O/logs_$n XDG_CACHE_HOME=$D/cache XDG_RUNTIME_DIR=$D/cache TMPDIR=$D/tmp PYTHONPATH=$SITE:$D
   timeout $t "$@" > $O/side_$n.txt 2>&1; echo "$n rc $? [$((SECONDS-start)) s]: $(grep -vE '^ *$' $O/side_$n.txt | tail -1 | cut -c1-200)") &
}
for p in attn:dsa_attention moe:moe gdn:gdn_prefill long:dsa_indexer_prefill; do side /tmp/${p%%:*} tests_${p%%:*} 200 python3 -m pytest -q -p no:cacheprovider tests/gpu/test_${p##*:}.py; done
side /tmp/attn sane 150 python3 .gpu/sane.py sanitize dsa_attention --workloads 0c23b10c,564007ac
side /tmp/land race 90 bash .gpu/lab/race/run.sh
wait; for n in attn moe gdn long; do failed side_tests_$n; done; keep; say sides
for p in attn:dsa_attention:40 moe:moe:50 gdn:gdn_prefill:70; do IFS=: read b r t <<< $p; at /tmp/$b; run ${b}_evaluate $t python3 -m harness evaluate $r --workloads all --record --commit $(cat $HERE/.gpu/sha_$b); tail -4 $O/${b}_evaluate.txt; records $b; done
grep -E "5709|2107|3028|8192 num_seqs=(20|57) " $O/gdn_evaluate.txt | cut -c1-120; grep -E "seq_len=(1|901|14107) " $O/moe_evaluate.txt
at /tmp/long; run long_evaluate $(($(left)-8)) python3 -m harness evaluate dsa_indexer_prefill --workloads all --record --commit $(cat $HERE/.gpu/sha_long); records long; grep -E "num_queries=(4096|512|64|8) num_keys=(16384|65536|131072|163840) |ragged" $O/long_evaluate.txt | cut -c1-150
