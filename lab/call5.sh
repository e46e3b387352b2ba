# . .gpu/setup; bash .gpu/call5.sh SECONDS : A on GPU 0, B on GPU 1
limit=$1; start=$SECONDS; HERE=$PWD; O=$OUT; SITE=${PYTHONPATH%%:*}; SHA=$(cat .gpu/sha)
left() { echo $((limit-(SECONDS-start))); }
say() { echo "== $* [$((SECONDS-start)) s]"; }
mkdir -p $O/a $O/l /tmp/g0 /tmp/g1
tree() { rm -rf $1; mkdir -p $1; tar --exclude=./.git --exclude=./blob -cf - . | tar -xf - -C $1; }
tree /tmp/g0/tree; tree /tmp/g1/tree
run() { name=$1; want=$2; shift 2; l=$(left); [ $l -lt 12 ] && { say "$name skipped"; return 1; }; [ $want -gt $((l-6)) ] && want=$((l-6)); timeout -s INT -k 8 $want "$@" > $O/$S/$name.txt 2>&1; rc=$?; say "$name rc $rc: $(tail -1 $O/$S/$name.txt | cut -c1-160)"; return $rc; }
keep() { tar czf $O/$S/tree.tgz results/latest results/runs results/search results/profiles results/shapes results/audit results/replay traces solutions/gdn_decode docs/kernels 2>/dev/null; }
(S=a; export OUT=$O/a CUDA_VISIBLE_DEVICES=0 TMPDIR=/tmp/g0 XDG_RUNTIME_DIR=/tmp/g0 XDG_CACHE_HOME=/tmp/g0/c
 cd /tmp/g0/tree; export PYTHONPATH=$SITE:/tmp/g0/tree TVM_FFI_CACHE_DIR=/tmp/g0/ffi FIB_CACHE_PATH=/tmp/g0/fib TRITON_CACHE_DIR=/tmp/g0/triton
 . .gpu/part_a.sh; keep ) > $O/a/all.txt 2>&1 &
(S=l; export OUT=$O/l CUDA_VISIBLE_DEVICES=1 TMPDIR=/tmp/g1 XDG_RUNTIME_DIR=/tmp/g1 XDG_CACHE_HOME=/tmp/g1/c
 cd /tmp/g1/tree; export PYTHONPATH=$SITE:/tmp/g1/tree TVM_FFI_CACHE_DIR=/tmp/g1/ffi FIB_CACHE_PATH=/tmp/g1/fib TRITON_CACHE_DIR=/tmp/g1/triton
 . .gpu/part_b.sh; keep ) > $O/l/all.txt 2>&1 &
wait
cat $O/a/all.txt; echo =====; cat $O/l/all.txt
(cd $O && tar czf all.tgz a l && split -b 15000000 all.tgz all.tgz.part && rm -rf a l all.tgz; ls -la); say end
