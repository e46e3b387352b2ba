export P=REPO/.venv/bin/python
job() { c=$1; d=$2; st=$3; [ $st = none ] && export NOSTATE=1; DROP=$d timeout 300 $P gf.py $c $O > /tmp/gf/out/$c.$d.$st 2>&1 || echo FAILED $c $d $st; }
export -f job; . ./second.sh
