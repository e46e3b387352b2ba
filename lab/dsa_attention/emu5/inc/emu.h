// A SIMT machine on one host thread: every CUDA thread a fiber; collectives meet in their warp.
#pragma once
#include <algorithm>
#include <cmath>
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <ucontext.h>
#include <vector>
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define INFINITY_ INFINITY
struct dim { int x; };
struct int2 { int x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
static inline uint32_t fbits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float bitsf(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint16_t to_bf16(float f) {
  uint32_t u = fbits(f);
  if (f != f) return 0x7fff;
  return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
static inline float from_bf16(uint16_t h) { return bitsf(uint32_t(h) << 16); }
struct __nv_bfloat16 { uint16_t v; };
struct alignas(4) __nv_bfloat162 { uint16_t x, y; };
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) { return {to_bf16(a), to_bf16(b)}; }
static inline float2 __bfloat1622float2(__nv_bfloat162 p) { return {from_bf16(p.x), from_bf16(p.y)}; }

constexpr size_t SMEM = 256 * 1024;
struct Fiber {
  ucontext_t context; char* stack; dim tid, bid; int cta; bool done = false; int arrived = 0;
  struct Copy { void* to; const void* from; int bytes; };
  std::vector<std::vector<Copy>> groups{1};
  int where = 0; const char* what = "";
};
struct WarpSlot { int count = 0; uint64_t generation = 0; uint64_t in[32][8]; uint64_t out[32][8]; };
struct Named { int count = 0; uint64_t generation = 0; };
struct MBar { int count = 0, pending = 0; int64_t tx = 0; uint64_t phase = 0; };
struct Machine {
  std::vector<Fiber> fibers; std::vector<WarpSlot> warps; char* arena; ucontext_t main;
  std::map<std::pair<int,int>, Named> named; std::map<uint32_t, MBar> mbars;
  std::vector<std::vector<int>> clusters; // counts by phase
  int threads, ctas, cluster; uint64_t progress = 0; uint64_t oob = 0;
};
extern Machine* M; extern Fiber* F; extern uint32_t seed_; static inline uint32_t rnd_() { seed_ = seed_ * 1664525u + 1013904223u; return seed_ >> 8; }
extern bool chaos_; extern std::vector<std::function<void()>> flying_;
#define threadIdx (F->tid)
#define blockIdx (F->bid)
static inline void yield_() { swapcontext(&F->context, &M->main); }
template <class C> static inline void wait_until(const char* what, C cond) { F->what = what; while (!cond()) yield_(); F->what = ""; ++M->progress; }
static inline WarpSlot& my_warp() { return M->warps[F->cta * ((M->threads + 31) / 32) + F->tid.x / 32]; }
// all 32 lanes deposit n words, the last runs op on the slot, all get out
template <class Op> static inline WarpSlot& meet(const uint64_t* in, int n, Op op, const char* what) {
  WarpSlot& w = my_warp(); const int lane = F->tid.x % 32;
  for (int i = 0; i < n; ++i) w.in[lane][i] = in[i];
  const uint64_t g = w.generation; ++M->progress;
  if (++w.count == 32) { op(w); w.count = 0; ++w.generation; }
  else wait_until(what, [&] { return w.generation != g; });
  return w;
}
#define LANE (F->tid.x % 32)
template <class T> static inline T shfl_(T v, int src) {
  uint64_t in[2] = {0, uint64_t(src)}; memcpy(in, &v, sizeof v);
  WarpSlot& w = meet(in, 2, [](WarpSlot& w) { for (int l = 0; l < 32; ++l) w.out[l][0] = w.in[w.in[l][1] & 31][0]; }, "shfl");
  T r; memcpy(&r, &w.out[LANE][0], sizeof r); return r;
}
template <class T> static inline T __shfl_sync(unsigned, T v, int src) { return shfl_(v, src % 32); }
template <class T> static inline T __shfl_xor_sync(unsigned, T v, int m) { return shfl_(v, LANE ^ m); }
static inline uint32_t __ballot_sync(unsigned, bool p) {
  uint64_t in[1] = {p};
  WarpSlot& w = meet(in, 1, [](WarpSlot& w) { uint64_t b = 0; for (int l = 0; l < 32; ++l) b |= w.in[l][0] << l; for (int l = 0; l < 32; ++l) w.out[l][0] = b; }, "ballot");
  return w.out[LANE][0];
}
static inline uint32_t __reduce_or_sync(unsigned, uint32_t v) {
  uint64_t in[1] = {v};
  WarpSlot& w = meet(in, 1, [](WarpSlot& w) { uint64_t b = 0; for (int l = 0; l < 32; ++l) b |= w.in[l][0]; for (int l = 0; l < 32; ++l) w.out[l][0] = b; }, "redux");
  return w.out[LANE][0];
}
static inline void __syncwarp() { uint64_t in[1]{}; meet(in, 1, [](WarpSlot&) {}, "syncwarp"); }
static inline void named_(int id, int n) {
  Named& b = M->named[{F->cta, id}]; const uint64_t g = b.generation; ++M->progress;
  if (++b.count == n) b.count = 0, ++b.generation; else wait_until("named", [&b, g] { return b.generation != g; });
}
static inline void __syncthreads() { named_(0, M->threads); }
static inline int __popc(uint32_t x) { return __builtin_popcount(x); }
static inline int __ffs(uint32_t x) { return __builtin_ffs(x); }
static inline float __uint_as_float(uint32_t u) { return bitsf(u); }
static inline float __fdividef(float a, float b) { return a / b; }
#define __log2f log2f
using std::min; using std::max;
static inline int __syncthreads_or(int) { named_(0, M->threads); return 0; }
static inline uint32_t __reduce_max_sync(unsigned, uint32_t v) {
  uint64_t in[1] = {v};
  WarpSlot& w = meet(in, 1, [](WarpSlot& w) { uint64_t b = 0; for (int l = 0; l < 32; ++l) b = std::max(b, w.in[l][0]); for (int l = 0; l < 32; ++l) w.out[l][0] = b; }, "redux");
  return w.out[LANE][0];
}
