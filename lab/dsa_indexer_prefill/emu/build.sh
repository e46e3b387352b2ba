set -e
cd clones/longctx-lab/emu; python3 make_emu.py
mkdir -p src; cp clones/longctx/solutions/dsa_indexer_prefill/*.cuh src/
sed -i "s/extern __shared__ __align__(1024) uint8_t memory\[\];//" src/*.cuh
g++ -std=c++17 -O2 -g -U_FORTIFY_SOURCE -w -shared -fPIC -fopenmp -Istubs -I. -Isrc -ffp-contract=off -o lib.so emu.cpp 2>&1 | head -40
