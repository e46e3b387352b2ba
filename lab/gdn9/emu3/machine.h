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
extern "C" { void rc_start(int, void*, size_t); void rc_turn(int); void rc_clear(void*, int); void rc_release(void*, int); void rc_acquire(void*, int); void rc_touch(const void*, size_t, int, void*); void rc_off(); extern int rc_products, rc_numbered, rc_warps, rc_async, rc_holder; }
namespace { alignas(1024) uint8_t memory[256 * 1024]; }
namespace emu {
struct Dim { unsigned x, y, z; };
struct Slot { int arrived = 0; int gen = 0; unsigned char data[2][32][96]; };
struct Fiber { ucontext_t ctx; bool done = false; Dim tid; std::vector<char> stack; };
inline std::vector<Fiber>* fibers; inline int cur; inline ucontext_t sched; inline Dim bid;
inline std::vector<Slot>* warps; inline std::function<void()>* body; inline long progress;
inline std::pair<void*, int> waits[2048];
inline void (*dumping)();
// Copies that land later (DELAYS: turns at most), of CTAs of STALLS_AT threads.
struct Event { long at; int thread; bool copies; std::function<void()> land; };
inline std::vector<Event> events; inline long now; inline int delays; inline unsigned chance = 1;
inline int draw(int n) { chance = chance * 1664525u + 1013904223u; return (chance >> 8) % n; }
struct Bar { int arrived = 0; int gen = 0; bool any[2] = {}; };
inline long faded, starvations, ambiguous; inline int nth[2048][4];
inline Bar bars[16];
inline void yield() { swapcontext(&(*fibers)[cur].ctx, &sched); }
inline int lane() { return (*fibers)[cur].tid.x % 32; }
inline int live() { int n = 0; for (auto& f : *fibers) n += !f.done; return n; }
template <bool ORDERS = false, typename T, typename F> auto collect(const T& mine, F use) {
  static_assert(sizeof(T) <= 96);
  Slot& s = (*warps)[(*fibers)[cur].tid.x / 32];
  const int g = s.gen;
  if (ORDERS) rc_release(&s, g % 2);
  memcpy(s.data[g % 2][lane()], &mine, sizeof(T));
  if (++s.arrived == 32) { s.arrived = 0; s.gen++; progress++; rc_clear(&s, (g + 1) % 2); }
  else while (s.gen == g) yield();
  if (ORDERS) rc_acquire(&s, g % 2);
  return use([&](int l) -> const T& { return *reinterpret_cast<const T*>(s.data[g % 2][l]); });
}
inline void barrier(int id, int count) {
  Bar& b = bars[id]; const int g = b.gen;
  const bool follows = id == 0 || rc_numbered;
  if (follows) rc_release(&b, g % 2);
  if (++b.arrived == count) { b.arrived = 0; b.gen++; progress++; b.any[(g + 1) % 2] = false; rc_clear(&b, (g + 1) % 2); }
  else while (b.gen == g) yield();
  if (follows) rc_acquire(&b, g % 2);
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
  rc_start(threads, memory, sizeof(memory));
  static std::vector<int> turn; turn.resize(threads); for (int i = 0; i < threads; ++i) turn[i] = i;
  const char* seed = getenv("ORDER"); unsigned state = seed ? atoi(seed) * 2654435761u + block.x * 977 + 1 : 0;
  const auto number = [](const char* name, int other) { return getenv(name) ? atoi(getenv(name)) : other; };
  const bool chosen = threads == number("STALLS_AT", 640); const int stall_most = number("STALL_MOST", 400), stall_every = number("STALL_EVERY", 1500);
  // STARVE: one warp (STARVE=1) or one thread (2) stands still until nothing else gets on, then goes on for a while.
  const int starves = chosen ? number("STARVE", 0) : 0; int starved = -1, still = 0, rest = 0; unsigned pick = state ^ 0x5bd1e995u;
  delays = chosen ? number("DELAYS", 0) : 0; chance = state | 1; events.clear(); now = 0;
  const bool stalls = getenv("STALLS") && threads == (getenv("STALLS_AT") ? atoi(getenv("STALLS_AT")) : 640); static std::vector<int> stall; stall.assign(ws.size(), 0);
  for (;;) {
    int left = 0; long before = progress; bool any_stalled = false;
    if (stalls) for (auto& s : stall) { state = state * 1664525u + 1013904223u; if (s > 0) --s; else if ((state >> 8) % stall_every == 0) s = 1 + (state >> 8) / stall_every % stall_most; any_stalled |= s > 0; }
    ++now;
    for (size_t i = 0; i < events.size();) if (events[i].at <= now) { auto e = events[i]; events.erase(events.begin() + i); cur = e.thread; e.land(); progress++; i = 0; } else ++i;
    if (starves) {
      if (starved >= 0 && still > 3 && events.empty()) { starved = -1; pick = pick * 1664525u + 1013904223u; rest = (pick >> 8) % 4 ? (pick >> 10) % 8 : (pick >> 10) % 300; starvations++; }
      else if (starved < 0 && rest-- <= 0) { pick = pick * 1664525u + 1013904223u; starved = starves == 1 ? (pick >> 8) % (threads / 32) * 32 : (pick >> 8) % threads; still = 0; }
      any_stalled |= starved >= 0;
    }
    const auto is_starved = [&](int t) { return starved >= 0 && (starves == 1 ? t / 32 == starved / 32 : t == starved); };
    if (seed) for (int i = threads - 1; i > 0; --i) { state = state * 1664525u + 1013904223u; std::swap(turn[i], turn[(state >> 8) % (i + 1)]); }
    for (int k = 0; k < threads; ++k) if (cur = turn[k], rc_turn(cur), !fs[cur].done) { ++left; if ((stalls && stall[cur / 32] > 0) || is_starved(cur)) continue; swapcontext(&sched, &fs[cur].ctx); }
    if (!left) { for (auto& e : events) if (e.copies) { printf("A COPY LANDS IN A CTA THAT HAS ENDED\n"); fflush(stdout); abort(); } rc_off(); break; }
    still = progress == before ? still + 1 : 0; any_stalled |= !events.empty();
    static int stuck; stuck = progress == before ? stuck + !any_stalled : 0;
    if (stuck > 100) { dumping(), printf("DEADLOCK block %u threads %d\n", block.x, threads); for (int i = 0; i < 16; ++i) printf("bar %d arrived %d\n", i, bars[i].arrived); for (size_t w = 0; w < ws.size(); ++w) { int d = 0; for (int l = 0; l < 32; ++l) d += fs[w*32+l].done; printf("warp %zu collect arrived %d done %d\n", w, ws[w].arrived, d); } fflush(stdout); abort(); }
  }
}
}
#define threadIdx ((*emu::fibers)[emu::cur].tid)
#define blockIdx emu::bid
#undef __host__
#define __host__
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
inline void __syncwarp() { if (rc_warps) emu::collect<true>(0, [](auto) { return 0; }); else emu::collect(0, [](auto) { return 0; }); }
template <typename T> T __shfl_sync(unsigned, T x, int l) { return emu::collect(x, [&](auto at) { return at(l); }); }
template <typename T> T __shfl_xor_sync(unsigned, T x, int m) { return emu::collect(x, [&](auto at) { return at(emu::lane() ^ m); }); }
template <typename T> T __shfl_up_sync(unsigned, T x, int d) { return emu::collect(x, [&](auto at) { return at(std::max(emu::lane() - d, 0) == 0 && emu::lane() < d ? emu::lane() : emu::lane() - d); }); }
inline unsigned __ballot_sync(unsigned, bool x) { return emu::collect(int(x), [&](auto at) { unsigned m = 0; for (int l = 0; l < 32; ++l) m |= unsigned(at(l) != 0) << l; return m; }); }
inline int __reduce_max_sync(unsigned, int x) { return emu::collect(x, [&](auto at) { int m = at(0); for (int l = 1; l < 32; ++l) m = std::max(m, at(l)); return m; }); }
inline int __reduce_add_sync(unsigned, int x) { return emu::collect(x, [&](auto at) { int m = 0; for (int l = 0; l < 32; ++l) m += at(l); return m; }); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __ffs(unsigned x) { return __builtin_ffs(x); }
inline void __threadfence() {}
inline void __nanosleep(int) { emu::yield(); }
inline float __uint_as_float(uint32_t x) { float y; memcpy(&y, &x, 4); return y; }
inline int atomicAdd(int* p, int n) { const int x = *p; *p += n; return x; }
template <typename T> inline T __ldcg(const T* p) { return *p; }
template <typename T> inline T __ldcs(const T* p) { return *p; }
template <typename T> inline void __stcs(T* p, T x) { *p = x; }
