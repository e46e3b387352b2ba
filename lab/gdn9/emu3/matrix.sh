# matrix.sh: all; results in /tmp/g3/out
mkdir -p /tmp/g3/out; cd /tmp/g3/lab; P=REPO/.venv/bin/python
job() { # tree bulk stalls_at case orders
  t=$1 b=$2 a=$3 c=$4; shift 4
  [ $a = 384 ] && export REUSE=1
  EMU=/tmp/g3/emu$t BULK=$b STALLS_AT=$a timeout 1500 $P fast.py $c $* > /tmp/g3/out/$t.$b.$a.$c 2>&1 || echo FAILED $t $b $a $c
}
export -f job; export P
O="0 1 2s 3s 5sd 6w 7t 8sd 10s"
{ for c in pair mixed many flip long cutlong; do echo "2 1 640 $c $O"; echo "1 2 640 $c $O"; done
  for c in pair many mixed flip long cutlong; do echo "2 2 384 $c $O"; done
  for c in pair mixed flip; do echo "2 0 640 $c $O"; done
} | xargs -P 2 -I J bash -c 'job J'
echo END
