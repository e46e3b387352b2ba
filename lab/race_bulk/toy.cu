// What racecheck makes of bulk copies into a stage that is used again. Each kernel is right. toy NUMBER
// 1 the barrier counts the request alone; 2 and 128 threads' copies of 16 bytes too; 3 as 2, readers arrive at `done` twice;
// 4 as 1, one thread of a warp arrives at `done` for it
#include <cstdint>
#include <cstdio>
#include <cstdlib>
__device__ uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void init(uint64_t* b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void arrive(uint64_t* b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(b)) : "memory"); }
__device__ void expect(uint64_t* b, int n) { asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(b)), "r"(n) : "memory"); }
__device__ void wait(uint64_t* b, int parity) { asm volatile("{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@!p bra again;\n}" ::"r"(at(b)), "r"(parity) : "memory"); }
__device__ void bulk(void* to, const void* from, int n, uint64_t* b) { asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)), "l"(from), "r"(n), "r"(at(b)) : "memory"); }
__device__ void chunk(void* to, const void* from) { asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(to)), "l"(from) : "memory"); }
__device__ void arrive_copies(uint64_t* b) { asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(b)) : "memory"); }
struct Mem { alignas(128) uint32_t bulk[1024]; uint32_t small[512]; uint64_t full, done; };
__shared__ Mem m;
template <int K> __global__ void __launch_bounds__(256) k(const uint32_t* in, uint32_t* out, int rounds) {
  const int t = threadIdx.x; const bool sends = t >= 128; uint32_t sum = 0;
  constexpr bool MIXED = K == 2 || K == 3; constexpr int TIMES = K == 3 ? 2 : 1;
  if (t == 0) { init(&m.full, 1 + (MIXED ? 128 : 0)); init(&m.done, K == 4 ? 4 : 128 * TIMES); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  __syncthreads();
  for (int r = 0; r < rounds; ++r) {
    if (sends) {
      if (r > 0) wait(&m.done, (r - 1) % 2);
      if (t == 128) { expect(&m.full, 4096); bulk(m.bulk, in + r * 1024, 4096, &m.full); }
      if (MIXED) { chunk(m.small + (t - 128) * 4, in + r * 1024 + (t - 128) * 4); arrive_copies(&m.full); }
    } else {
      wait(&m.full, r % 2);
      for (int i = t; i < 1024; i += 128) sum += m.bulk[i];
      if (MIXED) sum += m.small[4 * t];
      if (K == 4) { __syncwarp(); if (t % 32 == 0) arrive(&m.done); } else for (int i = 0; i < TIMES; ++i) arrive(&m.done);
    }
  }
  asm volatile("cp.async.wait_all;" ::: "memory");
  out[t] = sum;
}
int main(int n, char** v) {
  const int rounds = 5; uint32_t *in, *out; cudaMalloc(&in, rounds * 4096); cudaMalloc(&out, 1024); cudaMemset(in, 1, rounds * 4096);
  switch (atoi(v[1])) { case 1: k<1><<<1, 256>>>(in, out, rounds); break; case 2: k<2><<<1, 256>>>(in, out, rounds); break; case 3: k<3><<<1, 256>>>(in, out, rounds); break; case 4: k<4><<<1, 256>>>(in, out, rounds); }
  auto f = cudaDeviceSynchronize(); uint32_t got[256]; cudaMemcpy(got, out, 1024, cudaMemcpyDeviceToHost);
  const uint32_t want = 0x01010101u * (rounds * (8 + (atoi(v[1]) == 2 || atoi(v[1]) == 3)));
  printf("%s: %s: %s\n", v[1], cudaGetErrorString(f), got[0] == want && got[127] == want ? "right" : "WRONG");
}
