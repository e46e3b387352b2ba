# . .gpu/setup; bash .gpu/call7.sh SECONDS : part_a.sh on GPU 0, part_b.sh on GPU 1
limit=$1; start=$SECONDS; HERE=$PWD; O=$OUT; SITE=${PYTHONPATH%%:*}; SHA=$(cat .gpu/sha)
left() { echo $((limit-(SECONDS-start))); }
say() { echo "== $* [$((SECONDS-start)) s]"; }
mkdir -p $O/a $O/b /tmp/pack
tar --exclude=./.git --exclude=./blob --exclude=./.gpu/ray.tar.xz --exclude=./.gpu/wheels -cf /tmp/pack/tree.tar .
tree() { rm -rf $1; mkdir -p $1; tar -xf /tmp/pack/tree.tar -C $1; }  # FOLDER
overlay() { tree $1; tar -xzf .gpu/$2.tgz -C $1; }  # FOLDER BRANCH
run() { name=$1; want=$2; shift 2; l=$(left); [ $l -lt 12 ] && { say "$name skipped"; return 1; }; [ $want -gt $((l-6)) ] && want=$((l-6)); timeout -s INT -k 8 $want "$@" > $O/$S/$name.txt 2>&1; rc=$?; say "$name rc $rc: $(grep -vE '^ *$' $O/$S/$name.txt | tail -1 | cut -c1-160)"; return $rc; }
at() { cd $1; export PYTHONPATH=$SITE:$1; }  # FOLDER
records() { tar czf $O/$S/records_$1.tgz results/latest results/runs results/audit results/replay results/profiles results/shapes results/search results/compare traces 2>/dev/null; }  # of the tree I am in
side() { S0=$S; export S=$1; mkdir -p /tmp/$S; export OUT=$O/$S CUDA_VISIBLE_DEVICES=$2 TMPDIR=/tmp/$S XDG_RUNTIME_DIR=/tmp/$S XDG_CACHE_HOME=/tmp/$S/c TVM_FFI_CACHE_DIR=/tmp/$S/ffi FIB_CACHE_PATH=/tmp/$S/fib TRITON_CACHE_DIR=/tmp/$S/triton; mkdir -p /tmp/$S/c; }
(side a 0; . $HERE/.gpu/part_a.sh) > $O/a/all.txt 2>&1 &
(side b 1; . $HERE/.gpu/part_b.sh) > $O/b/all.txt 2>&1 &
wait
cat $O/a/all.txt; echo =====; cat $O/b/all.txt
(cd $O && tar czf /tmp/pack/all.tgz a b && rm -rf a b && split -b 15000000 /tmp/pack/all.tgz all.tgz.part; ls -la); say end
