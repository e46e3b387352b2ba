# bash FOLDER/contention.sh, in a checkout's root on a host with two GPUs: what a second busy GPU costs the stages of dsa_indexer.
# GPU 0 alone, GPU 1 alone, both; then both with half of the cores each. Mean milliseconds a workload of each stage.
SITE=${PYTHONPATH%%:*}; HERE=$PWD
side() {  # NAME GPU CORES
  D=/tmp/contention-$1; rm -rf $D; mkdir -p $D; tar --exclude=./.git --exclude=./blob --exclude=./.gpu -cf - . | tar -xf - -C $D
  (cd $D; export CUDA_VISIBLE_DEVICES=$2 XDG_RUNTIME_DIR=$D XDG_CACHE_HOME=$D TMPDIR=$D PYTHONPATH=$SITE:$D TVM_FFI_CACHE_DIR=/tmp/contention-ffi
   taskset -c $3 python3 -m harness evaluate dsa_indexer --workloads all > $D/out.txt 2>&1
   python3 - "$1" <<'P'
import glob, json, statistics, sys
rows = [json.loads(line)["harness"]["measurement"]["stages_s"] for f in glob.glob("traces/*/dsa_indexer.jsonl") for line in open(f)]
rows = [r for r in rows if r["correctness"] < 1]
print(sys.argv[1], len(rows), {k: round(1000 * statistics.mean(r[k] for r in rows), 1) for k in rows[0]})
P
  )
}
n=$(nproc); all=0-$((n - 1)); low=0-$((n / 2 - 1)); high=$((n / 2))-$((n - 1))
side first 0 $all  # builds
side gpu0 0 $all; side gpu1 1 $all
side both0 0 $all & side both1 1 $all & wait
side half0 0 $low & side half1 1 $high & wait
lscpu | grep -E "NUMA|Thread|Socket|Model name"; nvidia-smi topo -m 2>/dev/null | head -6
