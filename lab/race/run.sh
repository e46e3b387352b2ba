# bash FOLDER/run.sh: each kernel of race.cu under racecheck and synccheck, side by side; a line a kernel.
lab=$(cd "$(dirname "$0")" && pwd); D=${TMPDIR:-/tmp}/lab-race; mkdir -p $D; cd $D
nvcc -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -o race $lab/race.cu || exit 1
S=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer)
for k in $(seq 1 17); do for tool in racecheck synccheck; do (timeout 60 $S --tool $tool --print-limit 4 ./race $k > $k-$tool.txt 2>&1) & done; done; wait
for k in $(seq 1 17); do echo "$k: $(grep -h "kernel $k" $k-racecheck.txt) | $(grep -h SUMMARY $k-racecheck.txt | cut -c11-) | $(grep -h SUMMARY $k-synccheck.txt | cut -c11-) $(grep -h "Barrier error" $k-synccheck.txt | head -1 | cut -c11-)"; done
