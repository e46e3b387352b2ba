// What compute-sanitizer's racecheck and synccheck see of barriers that some of a CTA's threads use. Each kernel is right. race NUMBER
#include <cstdint>
#include <cstdio>
#include <cstdlib>
__device__ uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void bar(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ void arv(int id, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ void init(uint64_t* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void arrive(uint64_t* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory"); }
__device__ void wait(uint64_t* b, int parity) {
  asm volatile("{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(at(b)), "r"(parity) : "memory");
}
__device__ void carrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ void cwait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
struct Mem { int data[2][512]; uint64_t full[2], free[2]; };
__shared__ Mem m;
// 256 of 384 threads write, meet, read, meet, three times
__device__ int turns(int id, int base, int n, int t) {
  int sum = 0;
#pragma unroll 1
  for (int i = 0; i < 3; ++i) { m.data[0][base + t] = t + i; bar(id, n); sum += m.data[0][base + (t + 37) % n]; bar(id, n); }
  return sum;
}
template <int K> __global__ void __launch_bounds__(384) k(int* out) {
  const int t = threadIdx.x, lane = t % 32; int sum = 0;
  if (K == 1) { if (t < 256) sum = turns(1, 0, 256, t); }                                  // immediate number
  if (K == 2) { sum = turns(2 + t / 192, t / 192 * 192, 192, t % 192); }                   // number by group, in a register
  if (K == 3) { carrive(); cwait(); if (t < 256) sum = turns(1, 0, 256, t); }              // behind a cluster's barrier
  if (K == 4) { if (t < 256) { carrive(); cwait(); sum = turns(1, 0, 256, t); } else { carrive(); cwait(); } }  // at two places
  if (K == 5) { if (t < 256) { carrive(); bar(8, 384); sum = turns(1, 0, 256, t); } else { carrive(); cwait(); arv(8, 384); } }  // one role waits for it
  if (K >= 6 && K <= 9) {  // a ring of one: 6 every lane arrives, 7 one lane behind __syncwarp, 8 one lane behind a vote, 9 neither full nor free by all
    const int each = K == 6 ? 32 : 1;
    if (t == 0) { init(&m.full[0], K == 9 ? 4 : 128); init(&m.free[0], 8 * each); }
    __syncthreads();
    if (t >= 256) {
      for (int i = 0; i < 4; ++i) { if (i > 0) wait(&m.free[0], (i - 1) % 2); m.data[1][t - 256] = t * i; if (K == 9) { __syncwarp(); if (lane == 0) arrive(&m.full[0]); } else arrive(&m.full[0]); }
    } else {
      for (int i = 0; i < 4; ++i) {
        wait(&m.full[0], i % 2); int x = m.data[1][t % 128]; sum += x;
        if (K == 6) arrive(&m.free[0]);
        if (K == 7 || K == 9) { __syncwarp(); if (lane == 0) arrive(&m.free[0]); }
        if (K == 8) { bool any = __any_sync(~0u, x < 0); sum += any; if (lane == 0) arrive(&m.free[0]); }
      }
    }
  }
  if (K == 10) { if (t < 256) { m.data[0][t] = t; arv(7, 384); } else { bar(7, 384); sum = m.data[0][t - 256] + m.data[0][t - 128]; } }  // arrive and sync
  if (K == 11) { if (t < 256) { m.data[0][t] = t; sum = __syncthreads_or(0); } else { sum = __syncthreads_or(0) + m.data[0][t - 256]; } }  // synccheck: two places
  if (K == 12) { if (t < 256) { m.data[0][t] = t; bar(6, 384); } else { bar(6, 384); sum = m.data[0][t - 256]; } }  // counted, two places
  if (K == 13) { asm volatile("setmaxnreg.dec.sync.aligned.u32 40;"); if (t < 256) sum = turns(1, 0, 256, t); }
  if (K == 14) { if (t < 256) sum = turns(1, 0, 256, t); if (t < 64) sum += turns(2, 256, 64, t); if (t < 256) sum += turns(1, 0, 256, t); }  // pairs in between
  if (K == 15) { if (t >= 256) return; sum = turns(1, 0, 256, t); }                        // others have ended
  if (K == 16) { m.data[0][t] = t; bar(0, 384); sum = m.data[0][(t + 37) % 384]; }         // all, counted
  if (K == 17) {  // written by all of a warp, announced by one lane behind bar.sync of 256
    if (t == 0) init(&m.full[0], 1);
    __syncthreads();
    if (t < 256) { m.data[0][t] = t; bar(1, 256); if (t == 0) arrive(&m.full[0]); } else { wait(&m.full[0], 0); sum = m.data[0][t - 256]; }
  }
  out[blockIdx.x * 384 + t] = sum;
}
template <int K> void go(int* out) {
  cudaLaunchConfig_t c = {}; c.gridDim = 16; c.blockDim = 384; cudaLaunchAttribute a = {}; a.id = cudaLaunchAttributeClusterDimension; a.val.clusterDim = {K >= 3 && K <= 5 ? 8u : 1u, 1, 1}; c.attrs = &a; c.numAttrs = 1;
  auto e = cudaLaunchKernelEx(&c, k<K>, out); auto f = cudaDeviceSynchronize(); printf("kernel %d: %s %s\n", K, cudaGetErrorString(e), cudaGetErrorString(f));
}
int main(int, char** v) {
  int* out; cudaMalloc(&out, 16 * 384 * 4);
  switch (atoi(v[1])) {
#define CASE(K) case K: go<K>(out); break;
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) CASE(11) CASE(12) CASE(13) CASE(14) CASE(15) CASE(16) CASE(17)
  }
}
