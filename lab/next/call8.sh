# . .gpu/setup; bash .gpu/call8.sh SECONDS PART : sources .gpu/PART on one GPU; everything in $OUT/all.tgz, renewed after each step
limit=$1; start=$SECONDS; HERE=$PWD; BACK=$OUT; SITE=${PYTHONPATH%%:*}; SHA=$(cat .gpu/sha)
left() { echo $((limit-(SECONDS-start))); }
say() { echo "== $* [$((SECONDS-start)) s]"; }
O=/tmp/o; rm -rf $O; mkdir -p $O /tmp/pack; export OUT=$O
tar --exclude=./.git --exclude=./blob --exclude=./.gpu/wheels --exclude=./.gpu/*.tgz -cf /tmp/pack/tree.tar .
tree() { rm -rf $1; mkdir -p $1; tar -xf /tmp/pack/tree.tar -C $1; }  # FOLDER
overlay() { tree $1; tar -xzf .gpu/$2.tgz -C $1; }  # FOLDER BRANCH
keep() { (cd $O && tar czf /tmp/pack/all.tgz . && rm -f $BACK/all.tgz.part* && split -b 15000000 /tmp/pack/all.tgz $BACK/all.tgz.part); }
run() { name=$1; want=$2; shift 2; l=$(left); [ $l -lt 12 ] && { say "$name skipped"; return 1; }; [ $want -gt $((l-4)) ] && want=$((l-4)); timeout -s INT -k 8 $want "$@" > $O/$name.txt 2>&1; code=$?; say "$name rc $code: $(grep -vE '^ *$' $O/$name.txt | tail -1 | cut -c1-160)"; keep; return $code; }
at() { cd $1; export PYTHONPATH=$SITE:$1; }  # FOLDER
records() { tar czf $O/records_$1.tgz results/latest results/runs results/audit results/replay results/profiles results/shapes results/search results/compare results/study results/timers solutions/dsa_indexer traces 2>/dev/null; keep; }  # of the tree I am in
failed() { grep -E "^(FAILED|ERROR)" $O/$1.txt | cut -c1-200 | head -${2:-10}; }
. $HERE/.gpu/$2
keep; say end
