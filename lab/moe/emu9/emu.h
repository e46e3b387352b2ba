#pragma once
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cuda.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <vector>
#include <functional>
#include <algorithm>
#undef __shared__
#define __shared__ static
#undef __grid_constant__
#define __grid_constant__
#undef __launch_bounds__
#define __launch_bounds__(...)
using std::min; using std::max;
struct Fiber { void* sp; char* stack; dim3 tid, bid; bool done; int cta; uint64_t waits; };
extern Fiber* cur; extern dim3 emu_block_dim;
#define threadIdx (cur->tid)
#define blockIdx (cur->bid)
#define blockDim emu_block_dim
void yield();
struct Group { int arrived=0; uint64_t gen=0; uint64_t in[512]; uint64_t out[512]; };
Group& warp_group(); Group& wg_group(); Group& cta_group(); Group& named_group(int id);
// all `n` members meet; member index i
inline void meet(Group& g, int n, int i, uint64_t v) {
  g.in[i] = v; uint64_t gen = g.gen;
  if (++g.arrived == n) { memcpy(g.out, g.in, sizeof(g.in)); g.arrived = 0; ++g.gen; }
  else while (g.gen == gen) yield();
}
inline int emu_lane() { return cur->tid.x % 32; }
template <class T> uint64_t to64(T v) { uint64_t r = 0; memcpy(&r, &v, sizeof(T)); return r; }
template <class T> T from64(uint64_t v) { T r; memcpy(&r, &v, sizeof(T)); return r; }
template <class T> T __shfl_sync(unsigned, T v, int src) { Group& g = warp_group(); meet(g, 32, emu_lane(), to64(v)); return from64<T>(g.out[src & 31]); }
template <class T> T __shfl_xor_sync(unsigned, T v, int m) { Group& g = warp_group(); meet(g, 32, emu_lane(), to64(v)); return from64<T>(g.out[emu_lane() ^ m]); }
template <class T> T __shfl_up_sync(unsigned, T v, int d) { Group& g = warp_group(); meet(g, 32, emu_lane(), to64(v)); int l = emu_lane(); return from64<T>(g.out[l >= d ? l - d : l]); }
inline unsigned __ballot_sync(unsigned, bool p) { Group& g = warp_group(); meet(g, 32, emu_lane(), p); unsigned r = 0; for (int i = 0; i < 32; ++i) r |= unsigned(g.out[i] & 1) << i; return r; }
inline int __reduce_max_sync(unsigned, int v) { Group& g = warp_group(); meet(g, 32, emu_lane(), to64(v)); int r = from64<int>(g.out[0]); for (int i = 1; i < 32; ++i) r = std::max(r, from64<int>(g.out[i])); return r; }
inline unsigned __reduce_min_sync(unsigned, unsigned v) { Group& g = warp_group(); meet(g, 32, emu_lane(), to64(v)); unsigned r = from64<unsigned>(g.out[0]); for (int i = 1; i < 32; ++i) r = std::min(r, from64<unsigned>(g.out[i])); return r; }
inline int __reduce_add_sync(unsigned, int v) { Group& g = warp_group(); meet(g, 32, emu_lane(), to64(v)); int r = 0; for (int i = 0; i < 32; ++i) r += from64<int>(g.out[i]); return r; }
inline void __syncwarp() { Group& g = warp_group(); meet(g, 32, emu_lane(), 0); }
inline void __syncthreads() { meet(cta_group(), emu_block_dim.x, cur->tid.x, 0); }
inline void __threadfence() {}
inline void __nanosleep(unsigned) { yield(); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
template <class T> T __ldg(const T* p) { return *p; }
inline int __float_as_int(float f) { return from64<int>(to64(f)); }
inline float __int_as_float(int f) { return from64<float>(to64(f)); }
inline float __uint_as_float(unsigned f) { return from64<float>(to64(f)); }
inline float __frcp_rn(float a) { return 1.0f / a; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float x) { return expf(x); }
inline int atomicAdd(int* p, int v) { int o = *p; *p += v; return o; }
// shared memory: addresses are offsets from the CTA's base
extern thread_local char* dummy;
char* cta_base();
inline bool __any_sync(unsigned m, bool p) { return __ballot_sync(m, p) != 0; }
extern dim3 emu_grid;
inline unsigned __float_as_uint(float f) { return from64<unsigned>(to64(f)); }
