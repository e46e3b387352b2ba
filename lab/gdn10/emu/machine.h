// CTAs on the CPU, several at a time: a fiber a thread. solve_kernel's and the scan's run together: the scan's begin once all of solve_kernel's have allowed it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>
#include <map>
#include <sys/mman.h>
#include <immintrin.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using std::min; using std::max;
// no race checker here
inline void rc_clear(void*, int) {} inline void rc_release(void*, int) {} inline void rc_acquire(void*, int) {} inline void rc_touch(const void*, size_t, int, void*) {}
constexpr int rc_products = 0, rc_numbered = 0, rc_warps = 0, rc_async = 0, rc_holder = 0;
extern "C" void emu_switch(void** from, void* to);
asm(R"(
.text
.globl emu_switch
.type emu_switch,@function
emu_switch:
 pushq %rbp
 pushq %rbx
 pushq %r12
 pushq %r13
 pushq %r14
 pushq %r15
 movq %rsp, (%rdi)
 movq %rsi, %rsp
 popq %r15
 popq %r14
 popq %r13
 popq %r12
 popq %rbx
 popq %rbp
 ret
)");
constexpr int MEMORY_BYTES = 256 * 1024, MOST_CTAS = 12, MOST_THREADS = 6144;
namespace emu {
alignas(1024) inline uint8_t memories[MOST_CTAS][MEMORY_BYTES];
struct Dim { unsigned x, y, z; };
struct Slot { int arrived = 0; int gen = 0; unsigned char data[2][32][96]; };
struct Bar { int arrived = 0; int gen = 0; bool any[2] = {}; };
struct Cta { int first, threads; Dim bid; std::function<void()> body; bool scans; bool allowed = false; Bar bars[16]; double pace = 1; int left; long until = 0; };
struct Fiber { void* sp; bool done = false, quiet = false; Dim tid; Cta* cta; int nth_cta; const int* addr = nullptr; int value; char* stack = nullptr; };
inline std::vector<Fiber> all_fibers(MOST_THREADS); inline std::vector<Fiber>* fibers = &all_fibers; inline int cur; inline void* sched;
inline std::vector<Slot> all_warps(MOST_THREADS / 32); inline long progress;
inline std::vector<Cta> ctas; inline int solving, allowing;
inline std::pair<void*, int> waits[MOST_THREADS];
inline void (*dumping)();
inline uint8_t* mem() { return memories[all_fibers[cur].nth_cta]; }
// Copies that land later (DELAYS: turns at most).
struct Event { long at; int thread; bool copies; std::function<void()> land; };
inline std::vector<Event> events; inline long now; inline int delays; inline unsigned chance = 1;
inline int draw(int n) { chance = chance * 1664525u + 1013904223u; return (chance >> 8) % n; }
inline long faded, starvations, ambiguous, gave_up, dropped, dropped_twice, passes, bad; inline int nth[MOST_THREADS][4], mutant;
inline const uint8_t *v_first, *v_last, *scratch_first, *drop_first, *drop_last; inline std::vector<uint8_t> drops;
inline Bar& bar(int id) { return all_fibers[cur].cta->bars[id]; }
inline void yield() { Fiber& f = all_fibers[cur]; emu_switch(&f.sp, sched); }
inline void block(const int* addr, int value) { Fiber& f = all_fibers[cur]; while (*addr == value) { f.addr = addr; f.value = value; yield(); } f.addr = nullptr; }
inline int lane() { return cur % 32; }
struct Quiet { Quiet() { all_fibers[cur].quiet = true; } ~Quiet() { all_fibers[cur].quiet = false; } };
template <bool ORDERS = false, typename T, typename F> auto collect(const T& mine, F use) {
  static_assert(sizeof(T) <= 96);
  Slot& s = all_warps[cur / 32];
  const int g = s.gen;
  memcpy(s.data[g % 2][lane()], &mine, sizeof(T));
  if (++s.arrived == 32) { s.arrived = 0; s.gen++; if (!all_fibers[cur].quiet) progress++; }
  else block(&s.gen, g);
  return use([&](int l) -> const T& { return *reinterpret_cast<const T*>(s.data[g % 2][l]); });
}
inline void barrier(int id, int count) {
  Bar& b = bar(id); const int g = b.gen;
  if (++b.arrived == count) { b.arrived = 0; b.gen++; progress++; b.any[(g + 1) % 2] = false; }
  else block(&b.gen, g);
}
inline bool late_left();
inline void entry() { all_fibers[cur].cta->body(); if (late_left()) { printf("A THREAD ENDS WITH BULK STORES UNDER WAY\n"); fflush(stdout); abort(); } all_fibers[cur].done = true; progress++; emu_switch(&all_fibers[cur].sp, sched); abort(); }
inline void add_cta(int threads, Dim block, bool scans, std::function<void()> f) {
  const int first = ctas.empty() ? 0 : ctas.back().first + ctas.back().threads;
  if ((int)ctas.size() == MOST_CTAS || first + threads > MOST_THREADS) { printf("too many CTAs\n"); abort(); }
  ctas.push_back({first, threads, block, f, scans});
}
inline void run_all() {
  const int threads = ctas.back().first + ctas.back().threads, warps = threads / 32;
  solving = 0; for (auto& c : ctas) solving += !c.scans; allowing = solving;
  for (auto& s : all_warps) s.arrived = s.gen = 0;
  for (size_t c = 0; c < ctas.size(); ++c) {
    memset(memories[c], 0xff, MEMORY_BYTES);
    ctas[c].left = ctas[c].threads;
    for (int i = 0; i < ctas[c].threads; ++i) {
      Fiber& x = all_fibers[ctas[c].first + i]; x.done = x.quiet = false; x.addr = nullptr; x.tid = {unsigned(i), 0, 0}; x.cta = &ctas[c]; x.nth_cta = c;
      constexpr size_t STACK = 128 * 1024;
      if (!x.stack) x.stack = (char*)mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      void** top = (void**)(x.stack + STACK - 64 * (1 + (ctas[c].first + i) * 7 % 37) - 8); top[0] = nullptr; top[-1] = (void*)entry; for (int k = 2; k < 8; ++k) top[-k] = nullptr; x.sp = top - 7;
    }
  }
  static std::vector<int> turn; turn.resize(threads); for (int i = 0; i < threads; ++i) turn[i] = i;
  const char* seed = getenv("ORDER"); unsigned state = seed ? atoi(seed) * 2654435761u + 1 : 0;
  const auto number = [](const char* name, int other) { return getenv(name) ? atoi(getenv(name)) : other; };
  const int stall_most = number("STALL_MOST", 400), stall_every = number("STALL_EVERY", 1500), seq = number("SEQ", 0);
  // STARVE: one warp (STARVE=1) or one thread (2) stands still until nothing else gets on, then goes on for a while.
  const int starves = number("STARVE", 0); int starved = -1, still = 0, rest = 0; long starved_since = 0, starved_most = 0; unsigned pick = state ^ 0x5bd1e995u;
  delays = number("DELAYS", 0); chance = state | 1; events.clear(); now = 0; memset(nth, 0, sizeof(nth));
  const bool stalls = getenv("STALLS"), paces = getenv("PACE"); static std::vector<int> stall; stall.assign(warps, 0);
  int stuck = 0;
  for (;;) {
    int left = 0; long before = progress; bool any_stalled = false;
    if (stalls) for (auto& s : stall) { state = state * 1664525u + 1013904223u; if (s > 0) --s; else if ((state >> 8) % stall_every == 0) s = 1 + (state >> 8) / stall_every % stall_most; any_stalled |= s > 0; }
    ++now; ++passes;
    for (size_t i = 0; i < events.size();) if (events[i].at <= now) { auto e = std::move(events[i]); events[i] = std::move(events.back()); events.pop_back(); cur = e.thread; e.land(); progress++; i = 0; } else ++i;
    if (starves) {
      if (starved >= 0 && ((still > 3 && events.empty()) || now - starved_since > starved_most)) { starved = -1; pick = pick * 1664525u + 1013904223u; rest = (pick >> 8) % 4 ? (pick >> 10) % 8 : (pick >> 10) % 300; starvations++; }
      else if (starved < 0 && rest-- <= 0) { pick = pick * 1664525u + 1013904223u; starved = starves == 1 ? (pick >> 8) % warps * 32 : (pick >> 8) % threads; still = 0; starved_since = now; starved_most = 100 + (pick >> 12) % 4000; if (all_fibers[starved].done) starved = -1, rest = 0; }
      any_stalled |= starved >= 0;
    }
    const auto is_starved = [&](int t) { return starved >= 0 && (starves == 1 ? t / 32 == starved / 32 : t == starved); };
    if (seed) for (int i = threads - 1; i > 0; --i) { state = state * 1664525u + 1013904223u; std::swap(turn[i], turn[uint64_t(state) * (i + 1) >> 32]); }
    bool runs[MOST_CTAS]; int solve_left = 0;
    for (auto& c : ctas) if (!c.scans) solve_left += c.left > 0;
    for (size_t c = 0; c < ctas.size(); ++c) {
      Cta& x = ctas[c]; runs[c] = !x.scans || (seq ? solve_left == 0 : allowing == 0);
      if (paces) { if (now >= x.until) { state = state * 1664525u + 1013904223u; const int k = (state >> 8) % 8; x.pace = k < 4 ? 1 : k < 6 ? 0.3 : k < 7 ? 0.05 : 0.0; x.until = now + 50 + (state >> 12) % 2000; }
        state = state * 1664525u + 1013904223u; if (x.left > 0 && (state >> 8) % 1000 >= 1000 * x.pace) runs[c] = false, any_stalled = true; }
      left += x.left;
    }
    if (!left) { for (auto& e : events) if (e.copies) { printf("A COPY LANDS IN A CTA THAT HAS ENDED\n"); fflush(stdout); abort(); } break; }
    for (int k = 0; k < threads; ++k) {
      Fiber& f = all_fibers[turn[k]];
      if (f.done || !runs[f.nth_cta] || (f.addr && *f.addr == f.value)) continue;
      cur = turn[k];
      if ((stalls && stall[cur / 32] > 0) || is_starved(cur)) continue;
      emu_switch(&sched, f.sp);
      if (f.done) { if (--f.cta->left == 0) { if (!f.cta->scans && !f.cta->allowed) f.cta->allowed = true, --allowing; for (auto& e : events) if (e.copies && all_fibers[e.thread].cta == f.cta) { printf("A COPY LANDS IN A CTA THAT HAS ENDED\n"); fflush(stdout); abort(); } } }
    }
    still = progress == before ? still + 1 : 0; any_stalled |= !events.empty();
    stuck = progress == before ? stuck + !any_stalled : 0;
    if (stuck > 200) { printf("DEADLOCK\n"); for (auto& c : ctas) if (c.left) { printf("cta %u %s: %d left\n", c.bid.x, c.scans ? "scan" : "solve", c.left);
        for (int w = 0; w < c.threads / 32; ++w) { int d = 0; for (int l = 0; l < 32; ++l) d += all_fibers[c.first + 32 * w + l].done; auto x = waits[c.first + 32 * w]; printf("  warp %d done %d collect %d mbar at %ld phase %d\n", w, d, all_warps[(c.first + 32 * w) / 32].arrived, x.first ? (long)((uint8_t*)x.first - memories[&c - &ctas[0]]) : -1, x.second); } } fflush(stdout); _Exit(3); }
  }
  ctas.clear();
}
}
#define threadIdx (emu::all_fibers[emu::cur].tid)
#define blockIdx (emu::all_fibers[emu::cur].cta->bid)
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
template <typename T> inline T __ldg(const T* p) { return *p; }
inline void __syncthreads() { emu::barrier(0, emu::all_fibers[emu::cur].cta->threads); }
inline void __syncwarp() { emu::collect(0, [](auto) { return 0; }); }
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
