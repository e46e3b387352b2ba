# . .gpu/setup; bash .gpu/race_bulk/run.sh NEW_PROGRAM : a line a kernel and tool
cd $(dirname $0); N=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc); $N -O3 -std=c++17 -arch=sm_90a -lineinfo -o /tmp/toy_bulk toy.cu
for k in 1 2 3 4; do /tmp/toy_bulk $k; for p in $(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer) $1; do timeout 20 $p --tool racecheck /tmp/toy_bulk $k 2>&1 | grep -E "SUMMARY|Race reported" | cut -c1-150; done; done
