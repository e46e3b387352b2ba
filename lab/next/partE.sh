# gdn9 on the next version (new) and in short on main (old), new against old in turns, moe9, race_bulk: about 400 s
overlay /tmp/old old; overlay /tmp/land land; K=$HERE/.gpu/gdn9; S=$HERE/.gpu
SHORT="plain stamped base one_team no_result_stores no_store_waits no_read_stores no_counts no_fences counted_behind_reads queries_read_first"
mkdir -p /tmp/ab /tmp/kn /tmp/ko; export GDN9=$K PYTHONUNBUFFERED=1
(at /tmp/old; export PYTHONPATH=$PYTHONPATH:$K; python3 $S/ab/ab.py build old /tmp/old /tmp/ab > $O/ab_old.txt 2>&1; say ab old built) &
(at /tmp/land; export PYTHONPATH=$PYTHONPATH:$K; python3 $S/ab/ab.py build new /tmp/land /tmp/ab > $O/ab_new.txt 2>&1; say ab new built) &
(at /tmp/land; BUILD_ONLY=1 bash $S/moe9/run.sh 50 > $O/moe9_build.txt 2>&1; say moe9 built) &
(at /tmp/land; JOBS=14 BUILD_ONLY=1 TMPDIR=/tmp/kn bash $K/run.sh 150 > $O/build_new.txt 2>&1; tail -1 $O/build_new.txt;  at /tmp/old; ONLY="$SHORT" JOBS=14 BUILD_ONLY=1 TMPDIR=/tmp/ko bash $K/run.sh 60 > $O/build_old.txt 2>&1; tail -1 $O/build_old.txt) &
wait; say built
at /tmp/land; export PYTHONPATH=$PYTHONPATH:$K
run ab 60 python3 -W ignore $S/ab/ab.py run 50 /tmp/ab old new; tail -1 $O/ab.txt; grep -E "^(other|built|rounds|134/|97/|2107/1|5709|8192)" $O/ab.txt
mkdir -p $O/new $O/old
OUT=$O/new run gdn9_new 140 python3 -W ignore $K/lab.py run 135 /tmp/kn/lab-gdn9
at /tmp/old; export PYTHONPATH=$PYTHONPATH:$K
OUT=$O/old run gdn9_old 70 python3 -W ignore $K/lab.py run 66 /tmp/ko/lab-gdn9
at /tmp/land; run moe9 60 python3 -W ignore $S/moe9/lab.py run /tmp/lab-moe9
mkdir -p /tmp/newtool; python3 -m zipfile -e $S/tool/*.whl /tmp/newtool; find /tmp/newtool -name "compute-sanitizer" -o -name "*.so*" -o -name "TreeLauncher*" | xargs chmod +x; NEW=$(find /tmp/newtool -path "*bin/compute-sanitizer" | head -1)
run race_bulk 60 bash $S/race_bulk/run.sh $NEW; cat $O/race_bulk.txt | head -20
