# matrix.sh EMU ORDERS CASES
cd /tmp/scanwaits/lab; export STALLS_AT=384 SO=plain.so REUSE=1 EMU=/tmp/scanwaits/$1; O="$2"; shift 2
for c in $*; do timeout 900 REPO/.venv/bin/python fast.py $c $O 2>&1 | grep --line-buffered -v "^bar\|^warp" || echo FAILED $c; done; echo done
