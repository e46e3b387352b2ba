#include <array>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <tuple>
#include <vector>
#include <dlfcn.h>
using V = std::vector<uint32_t>;
static int n, mode; static bool on; static uintptr_t base; static size_t bytes; static int current;
static std::vector<V> vc; static std::map<std::pair<void*, int>, V> points;
struct Cell { int writer = -1; uint32_t at = 0; void* pc = nullptr; std::vector<std::tuple<int, uint32_t, void*>> reads; };
static std::vector<Cell> cells; static std::map<std::pair<void*, void*>, std::array<long, 4>> pairs;
extern "C" {
void rc_start(int threads, void* memory, size_t size) {
  n = threads; base = (uintptr_t)memory; bytes = size; vc.assign(n, V(n, 0)); for (int i = 0; i < n; ++i) vc[i][i] = 1;
  points.clear(); cells.assign(size / 2, Cell()); on = !getenv("NO_RC");
}
void rc_turn(int t) { current = t; }
void rc_clear(void* key, int phase) { points[{key, phase}].clear(); }
void rc_release(void* key, int phase) {
  if (!on) return;
  V& to = points[{key, phase}]; if (to.empty()) to.assign(n, 0); V& v = vc[current];
  if (mode == 0) for (int i = 0; i < n; ++i) to[i] = std::max(to[i], v[i]); else to[current] = v[current];
  v[current]++;
}
void rc_acquire(void* key, int phase) {
  if (!on) return;
  V& from = points[{key, phase}]; if (from.empty()) return; V& v = vc[current];
  for (int i = 0; i < n; ++i) if (i != current) v[i] = std::max(v[i], from[i]);
}
static bool knows(int u, uint32_t at) { return u == current || vc[current][u] >= at; }
// kinds: 0 read after write, 1 write after read, 2 write after write; [3] of other warps
static void note(void* a, void* b, int u, int kind) { auto& x = pairs[{a, b}]; x[kind]++; if (u / 32 != current / 32) x[3]++; }
void rc_touch(const void* q, size_t size, int writes, void* pc) {
  const uintptr_t p = (uintptr_t)q; if (!on || p < base || p >= base + bytes) return;
  const uint32_t e = vc[current][current];
  for (size_t i = (p - base) / 2; i < (p - base + size + 1) / 2; ++i) {
    Cell& c = cells[i];
    if (c.writer >= 0 && !knows(c.writer, c.at)) note(c.pc, pc, c.writer, writes ? 2 : 0);
    if (writes) {
      for (auto& [u, at, of] : c.reads) if (!knows(u, at)) note(of, pc, u, 1);
      c.reads.clear(); c.writer = current; c.at = e; c.pc = pc;
    } else {
      bool has = false;
      for (auto& [u, at, of] : c.reads) if (u == current) { at = e, of = pc; has = true; break; }
      if (!has) c.reads.emplace_back(current, e, pc);
    }
  }
}
unsigned char __tsan_atomic8_load(const volatile unsigned char* p, int) { return *p; }
void __tsan_init() {} void __tsan_func_entry(void*) {} void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {} void __tsan_vptr_read(void**) {}
#define BOTH(N) void __tsan_read##N(void* p) { rc_touch(p, N, 0, __builtin_return_address(0)); } void __tsan_write##N(void* p) { rc_touch(p, N, 1, __builtin_return_address(0)); } \
  void __tsan_unaligned_read##N(void* p) { rc_touch(p, N, 0, __builtin_return_address(0)); } void __tsan_unaligned_write##N(void* p) { rc_touch(p, N, 1, __builtin_return_address(0)); }
BOTH(1) BOTH(2) BOTH(4) BOTH(8) BOTH(16)
void __tsan_read_range(void* p, long k) { rc_touch(p, k, 0, __builtin_return_address(0)); }
void __tsan_write_range(void* p, long k) { rc_touch(p, k, 1, __builtin_return_address(0)); }
int rc_products, rc_numbered = 1, rc_warps = 1, rc_async = 1, rc_holder;
void rc_mode(int m, int products, int numbered, int warps, int async) { mode = m; rc_products = products; rc_numbered = numbered; rc_warps = warps; rc_async = async; pairs.clear(); }
void rc_off() { on = false; }
void rc_print() {
  Dl_info d; dladdr((void*)rc_print, &d);
  for (auto& [k, v] : pairs) printf("PAIR %lx %lx RAW %ld WAR %ld WAW %ld, of other warps %ld\n", (long)k.first - (long)d.dli_fbase - 1, (long)k.second - (long)d.dli_fbase - 1, v[0], v[1], v[2], v[3]);
  printf("%zu pairs\n", pairs.size()); fflush(stdout);
}
}
