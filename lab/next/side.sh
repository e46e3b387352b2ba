# sourced: side TREE NAME SECONDS COMMAND... : correctness beside others, in a copy, with locks and builds of its own
side() {
  local tree=$1 n=$2 t=$3; shift 3; local D=/tmp/side_$n; rm -rf $D; cp -r $tree $D; mkdir -p $D/cache $D/tmp $D/.gpu; cp $HERE/.gpu/*.py $D/.gpu/
  (cd $D; export LOGS=$O/logs_$n XDG_CACHE_HOME=$D/cache XDG_RUNTIME_DIR=$D/cache TMPDIR=$D/tmp PYTHONPATH=$SITE:$D TVM_FFI_CACHE_DIR=$D/cache/tvm
   timeout $t "$@" > $O/side_$n.txt 2>&1; echo "$n rc $? [$((SECONDS-start)) s]: $(grep -vE '^ *$' $O/side_$n.txt | tail -1 | cut -c1-200)") &
}
