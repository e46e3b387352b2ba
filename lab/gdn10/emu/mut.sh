P=REPO/.venv/bin/python; export P
# mutant case orders...
run() { m=$1; c=$2; shift 2; MUTANT=$m timeout 90 $P gf.py $c $* > /tmp/gf/mut/$m.$c 2>&1; echo "rc $?" >> /tmp/gf/mut/$m.$c; }
export -f run
cat <<'X' | xargs -P ${JOBS:-2} -I J bash -c 'run J'
1 whole 1 2d 3sd 4wd 5pd
1 cut3 1 2d 3sd
2 whole9 1 2d 3sd 4wd 5td 6pd
2 whole 1 2d 3sd 4wd 5pd
11 cut3 1 2d 3sd 5pd
11 hand1 1 2d 3sd 4wd
12 cut3 1 2d 3sd 5pd
12 hand 1 2d 3sd 5pd
3 whole 1 2d 3s 4p 5w
3 hand 1 2d 3s 4p 5w
4 whole9 1 2d 3sd 4wd 6pd 7t 8v
4 halves1 1 2d 3sd 4wd 6pd
14 whole9 1 2d 3sd 4wd 6s 7t 8v
5 whole 1 2d 3s 4p 5w 6t
5 hand 1 2d 3s 4p 5w 6t
6 whole9 1 2s 3sd 4w 5t
7 whole9 1 2s 3sd 4w 5t
8 whole9 1 2d 3sd 4w 5t 6v
9 whole9 1 2d 3s
10 halvesN 1 2d 3s 4p
10 halves1 1 2d 3s
13 whole9 1 2d 3sd 4w 5t 6v
15 cut2 1 2d 3s 4p 5w
16 whole9 1 2s 3sd 4w 5t
X
