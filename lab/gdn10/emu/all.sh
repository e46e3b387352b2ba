# all.sh: every case in the orders O; results in /tmp/gf/out
P=REPO/.venv/bin/python; export P
job() { c=$1; shift; d=$1; shift; st=$1; shift; DROP=$d; [ $st = none ] && export NOSTATE=1; DROP=$d timeout 900 $P gf.py $c $O > /tmp/gf/out/$c.$d.$st 2>&1 || echo FAILED $c $d $st; }
export -f job; export O
for c in ${CASES:-whole whole9 gaps halves halves1 halvesN hand hand1 cut2 cut3 cut3b cut4 flip fliphand mixed many385}; do for d in ${DROPS:-1}; do for st in ${STATES:-state}; do echo "$c $d $st"; done; done; done | xargs -P 2 -I J bash -c 'job J'
grep -h -v " OK " /tmp/gf/out/* | head -20; cat /tmp/gf/out/* | grep -c " OK "; date
