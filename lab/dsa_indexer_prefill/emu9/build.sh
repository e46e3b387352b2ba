set -e
S=${1:-clones/n_long}; cd clones/n_long-lab/emu; sed -i "s#^root=.*#root='$S/solutions/dsa_indexer_prefill/'#" make_emu.py; python3 make_emu.py
mkdir -p src; cp $S/solutions/dsa_indexer_prefill/*.cuh src/
sed -i "s/extern __shared__ __align__(1024) uint8_t memory\[\];/uint8_t* memory=smem_base;/" src/*.cuh
g++ -std=c++17 -O2 -g -U_FORTIFY_SOURCE -w -shared -fPIC -fopenmp -Istubs -I. -Isrc -ffp-contract=off -o lib.so emu.cpp 2>&1 | head -40
