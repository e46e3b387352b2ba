set -e
cd /tmp/emu9; python3 ex.py; python3 core_new.py
sed -i 's/^void tile_product(uint64_t, uint64_t, int, float\*) { abort(); }/void tile_product(uint64_t a, uint64_t b, int N, float* D) { static float A[64*32], B[256*32]; fetch_rows(a,64,A); fetch_rows(b,N,B); for (int m=0;m<64;++m) for (int n=0;n<N;++n) { float s=0; for (int k=0;k<32;++k) s+=A[m*32+k]*B[n*32+k]; D[m*N+n]=s; } }/; s/^void emu_commit() .*/void emu_commit() {}/; s/^void emu_wait(int p) .*/void emu_wait(int) {}/' core2.cc
g++ -std=c++17 -O3 -march=native -w -fPIC -I. -I/usr/local/cuda-13.0/include -I$SRC/solutions/moe -ffast-math -fno-finite-math-only -c core2.cc -o core.o
g++ -std=c++17 -O1 -march=native -w -fPIC $DEF -I. -I/usr/local/cuda-13.0/include -I$SRC/solutions/moe -I$SRC/solutions/common_none -c main.cc -o main.o
g++ -shared core.o main.o -o $OUTSO
