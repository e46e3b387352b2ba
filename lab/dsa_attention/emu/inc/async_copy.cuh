#pragma once
#include "emu.h"
static inline char* at_(uint32_t a) { return M->arena + a; }
static inline uint32_t shared_address(const void* p) { return uint32_t((const char*)p - M->arena); }
static inline void check_to_(const void* p, int align) {
  const char* base = M->arena + size_t(F->cta) * SMEM;
  if ((const char*)p < base || (const char*)p >= base + 227 * 1024 || (uintptr_t)p % align) { printf("bad shared address\n"); abort(); }
}
static inline void copy_chunk(void* to, const void* from) { check_to_(to, 16); F->groups.back().push_back({to, from, 16}); }
static inline void copy_chunk_or_clear(void* to, const void* from, bool v) { check_to_(to, 16); F->groups.back().push_back({to, v ? from : nullptr, 16}); }
static inline void commit_copies() { F->groups.emplace_back(); }
static inline void run_groups_(size_t upto) {
  for (size_t g = 0; g < upto; ++g) for (auto& c : F->groups[g]) { if (c.from) memcpy(c.to, c.from, 16); else memset(c.to, 0, 16); }
  F->groups.erase(F->groups.begin(), F->groups.begin() + upto);
  if (F->groups.empty()) F->groups.emplace_back();
}
template <int P> static inline void wait_copies() { const int committed = int(F->groups.size()) - 1; if (committed > P) run_groups_(committed - P); }
static inline MBar& bar_(uint32_t a) { return M->mbars[a]; }
static inline void settle_(MBar& b) { if (b.pending == 0 && b.tx == 0) { ++b.phase; b.pending = b.count; } ++M->progress; }
static inline void init_barrier(uint64_t* b, uint32_t n) { bar_(shared_address(b)) = {int(n), int(n), 0, 0}; }
static inline void fence_barrier_init() {}
static inline void publish_shared() {}
static inline void arrive(uint64_t* b) { MBar& m = bar_(shared_address(b)); if (m.pending <= 0) { printf("too many arrivals\n"); abort(); } --m.pending; settle_(m); }
static inline void arrive_expecting(uint64_t* b, uint32_t bytes) { MBar& m = bar_(shared_address(b)); m.tx += bytes; --m.pending; settle_(m); }
static inline void arrive_with_copies(uint64_t* b) { run_groups_(F->groups.size()); arrive(b); }
static inline void wait_phase(uint64_t* b, uint32_t parity) { const uint32_t a = shared_address(b); wait_until("mbarrier", [a, parity] { return (bar_(a).phase & 1) != parity; }); }
template <int T> static inline void sync_first() { named_(1, T); }
