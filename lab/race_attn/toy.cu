// What racecheck makes of a cluster's barrier that part of a CTA awaits, and of sends behind it. Each kernel is right. toy NUMBER [CTAS]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
__device__ uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ void bar(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ void arv(int id, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ void carrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ void cwait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
__device__ uint32_t in(uint32_t a, uint32_t rank) { uint32_t r; asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(rank)); return r; }
__device__ void send(uint32_t to, uint32_t x, uint32_t b) { asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(to), "r"(x), "r"(b) : "memory"); }
__device__ void await(uint64_t* b) { asm volatile("{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], 0;\n@!p bra again;\n}" ::"r"(at(b)) : "memory"); }
struct Mem { uint32_t data[384]; uint64_t landed; };
__shared__ Mem m;
// 1 helpers wait, nobody sends; 2 all wait, computing warps send; 3 helpers wait and send; 4 helpers wait, computing warps send (the room's form)
// 5 all wait and meet behind it, computing warps send; 6 as 4, and the cluster meets at the end; 7 as 2, and the cluster meets at the end
template <int K> __global__ void __launch_bounds__(384) k(uint32_t* out, int ctas) {
  const int t = threadIdx.x, next = (blockIdx.x + 1) % ctas; const bool helps = t >= 256; uint32_t sum = 0;
  constexpr int SENDS = K == 1 ? 0 : K == 3 ? 128 : 256;
  if (helps) {
    if (t == 256) { asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&m.landed)) : "memory"); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
    __syncwarp(); carrive(); bar(9, 128); arv(6, 384);
    if (t == 256 && SENDS) asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(&m.landed)), "r"(4 * SENDS) : "memory");
    cwait();
    if (K != 2 && K != 7) arv(8, 384);
    if (K == 3) send(in(at(&m.data[t]), next), t, in(at(&m.landed), next));
  } else {
    carrive(); bar(6, 384);
    if (K == 2 || K == 5 || K == 7) cwait();
    if (K != 2 && K != 7) bar(8, 384);
    if (SENDS == 256) send(in(at(&m.data[t]), next), t, in(at(&m.landed), next));
  }
  if (SENDS) { await(&m.landed); sum = m.data[SENDS == 256 ? t % 256 : 256 + t % 128]; }
  if (K == 6 && !helps) cwait();  // of the first phase, before the second
  if (K == 6 || K == 7) { carrive(); cwait(); }
  out[blockIdx.x * 384 + t] = sum;
}
template <int K> void go(uint32_t* out, int ctas) {
  cudaFuncSetAttribute(k<K>, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchConfig_t c = {}; c.gridDim = ctas; c.blockDim = 384; cudaLaunchAttribute a = {}; a.id = cudaLaunchAttributeClusterDimension; a.val.clusterDim = {unsigned(ctas), 1, 1}; c.attrs = &a; c.numAttrs = 1;
  auto e = cudaLaunchKernelEx(&c, k<K>, out, ctas); auto f = cudaDeviceSynchronize();
  static uint32_t got[16 * 384]; cudaMemcpy(got, out, ctas * 384 * 4, cudaMemcpyDeviceToHost); bool right = true;
  for (int i = 0; i < ctas * 384; ++i) { const int t = i % 384; if (got[i] != (K == 1 ? 0u : K == 3 ? 256u + t % 128 : t % 256u)) right = false; }
  printf("ended: %s %s: %s\n", cudaGetErrorString(e), cudaGetErrorString(f), right ? "right" : "WRONG");
}
int main(int n, char** v) {
  const int ctas = n > 2 ? atoi(v[2]) : 16; uint32_t* out; cudaMalloc(&out, 16 * 384 * 4);
  switch (atoi(v[1])) {
#define CASE(K) case K: go<K>(out, ctas); break;
    CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7)
  }
}
