# contention.sh: what a second busy GPU costs. micro.py alone and both, in several placements; then the first workloads of two rooms.
SITE=${PYTHONPATH%%:*}; HERE=$PWD; n=$(nproc); all=0-$((n-1)); low=0-$((n/2-1)); high=$((n/2))-$((n-1))
lscpu | grep -E "NUMA|Thread|Socket|Model name|MHz|L3"; nvidia-smi topo -m 2>/dev/null | head -6; free -g | head -2
micro() { CUDA_VISIBLE_DEVICES=$2 taskset -c $3 python3 .gpux/micro.py $1 $4; }
t() { python3 -c "import time;print(time.time()+8)"; }
T=$(t); micro alone0 0 $all $T
T=$(t); micro both0 0 $all $T & micro both1 1 $all $T & wait
T=$(t); micro half0 0 $low $T & micro half1 1 $high $T & wait
export OMP_NUM_THREADS=8; T=$(t); micro omp8_0 0 $all $T & micro omp8_1 1 $all $T & wait; unset OMP_NUM_THREADS
side() {  # NAME GPU CORES ROOM
  D=/tmp/contention-$1; if [ ! -d $D ]; then mkdir -p $D; tar --exclude=./.git --exclude=./blob --exclude=./.gpux -cf - . | tar -xf - -C $D; [ $1 = b ] && cp -r /tmp/contention-a/blob $D/; fi
  (cd $D; rm -rf traces/nvidia*; export CUDA_VISIBLE_DEVICES=$2 XDG_RUNTIME_DIR=$D XDG_CACHE_HOME=$D TMPDIR=$D PYTHONPATH=$SITE:$D TVM_FFI_CACHE_DIR=/tmp/contention-ffi
   taskset -c $3 python3 -m harness evaluate $4 --workloads $(cat $HERE/.gpux/some-$4) > $D/out.txt 2>&1; tail -1 $D/out.txt | cut -c1-150
   python3 - "$1 $4" <<'P'
import glob, json, statistics, sys
rows = [json.loads(line)["harness"]["measurement"]["stages_s"] for f in glob.glob("traces/nvidia*/*.jsonl") for line in open(f)]
rows = [r for r in rows if r["build"] < 1][3:]
print(sys.argv[1], len(rows), {k: round(1000 * statistics.mean(r.get(k, 0) for r in rows), 1) for k in rows[0]}, flush=True)
P
  )
}
room=dsa_indexer
side a 0 $all $room >/dev/null; echo built $SECONDS
side a 0 $all $room
side a 0 $all $room & side b 1 $all $room & wait
side a 0 $low $room & side b 1 $high $room & wait
(export OMP_NUM_THREADS=8; side a 0 $all $room & side b 1 $all $room & wait); echo $SECONDS
room=gdn_prefill
side a 0 $all $room >/dev/null; side a 0 $all $room
side a 0 $all $room & side b 1 $all $room & wait
side a 0 $low $room & side b 1 $high $room & wait; echo $SECONDS
