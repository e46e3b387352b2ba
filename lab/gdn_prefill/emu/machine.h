// A CTA on the CPU: a fiber a thread.
#pragma once
#include <ucontext.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using std::min; using std::max;
namespace emu {
struct Dim { unsigned x, y, z; };
struct Slot { int arrived = 0; int gen = 0; unsigned char data[2][32][96]; };
struct Fiber { ucontext_t ctx; bool done = false; Dim tid; std::vector<char> stack; };
inline std::vector<Fiber>* fibers; inline int cur; inline ucontext_t sched; inline Dim bid;
inline std::vector<Slot>* warps; inline std::function<void()>* body; inline long progress;
struct Bar { int arrived = 0; int gen = 0; };
inline Bar bars[16];
inline void yield() { swapcontext(&(*fibers)[cur].ctx, &sched); }
inline int lane() { return (*fibers)[cur].tid.x % 32; }
inline int live() { int n = 0; for (auto& f : *fibers) n += !f.done; return n; }
template <typename T, typename F> auto collect(const T& mine, F use) {
  static_assert(sizeof(T) <= 96);
  Slot& s = (*warps)[(*fibers)[cur].tid.x / 32];
  const int g = s.gen;
  memcpy(s.data[g % 2][lane()], &mine, sizeof(T));
  if (++s.arrived == 32) { s.arrived = 0; s.gen++; progress++; }
  else while (s.gen == g) yield();
  return use([&](int l) -> const T& { return *reinterpret_cast<const T*>(s.data[g % 2][l]); });
}
inline void barrier(int id, int count) {
  Bar& b = bars[id]; const int g = b.gen;
  if (++b.arrived == count) { b.arrived = 0; b.gen++; progress++; }
  else while (b.gen == g) yield();
}
inline void entry() { (*body)(); (*fibers)[cur].done = true; progress++; swapcontext(&(*fibers)[cur].ctx, &sched); }
inline void run_cta(int threads, Dim block, std::function<void()> f) {
  static std::vector<Fiber> fs; static std::vector<Slot> ws;
  fs.resize(threads); ws.assign((threads + 31) / 32, Slot()); for (auto& b : bars) b = Bar();
  fibers = &fs; warps = &ws; body = &f; bid = block;
  for (int i = 0; i < threads; ++i) {
    Fiber& x = fs[i]; x.done = false; x.tid = {unsigned(i), 0, 0};
    if (x.stack.empty()) x.stack.resize(256 * 1024);
    getcontext(&x.ctx); x.ctx.uc_stack.ss_sp = x.stack.data(); x.ctx.uc_stack.ss_size = x.stack.size();
    x.ctx.uc_link = nullptr; makecontext(&x.ctx, entry, 0);
  }
  for (;;) {
    int left = 0; long before = progress;
    for (cur = 0; cur < threads; ++cur) if (!fs[cur].done) { ++left; swapcontext(&sched, &fs[cur].ctx); }
    if (!left) break;
    static int stuck; stuck = progress == before ? stuck + 1 : 0;
    if (stuck > 100) { printf("DEADLOCK block %u %u %u\n", block.x, block.y, block.z); abort(); }
  }
}
}
#define threadIdx ((*emu::fibers)[emu::cur].tid)
#define blockIdx emu::bid
#undef __device__
#undef __global__
#undef __forceinline__
#undef __launch_bounds__
#undef __grid_constant__
#undef __shared__
#define __device__
#define __global__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static
inline int warps_of(int) { return 0; }
template <typename T> inline T __ldg(const T* p) { return *p; }
inline void __syncthreads() { emu::barrier(0, emu::fibers->size()); }
inline void __syncwarp() { emu::collect(0, [](auto) { return 0; }); }
template <typename T> T __shfl_sync(unsigned, T x, int l) { return emu::collect(x, [&](auto at) { return at(l); }); }
template <typename T> T __shfl_xor_sync(unsigned, T x, int m) { return emu::collect(x, [&](auto at) { return at(emu::lane() ^ m); }); }
template <typename T> T __shfl_up_sync(unsigned, T x, int d) { return emu::collect(x, [&](auto at) { return at(std::max(emu::lane() - d, 0) == 0 && emu::lane() < d ? emu::lane() : emu::lane() - d); }); }
inline float __uint_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
