#pragma once
#include "../machine.h"
namespace { alignas(1024) uint8_t memory[256 * 1024]; }
inline uint32_t shared_address(const void* p) {
  const long d = static_cast<const uint8_t*>(p) - memory;
  if (d < 0 || d >= (long)sizeof(memory)) { printf("not shared\n"); abort(); }
  return d;
}
inline void copy_chunk(void* s, const void* g) { memcpy(s, g, 16); }
inline void copy_chunk_or_clear(void* s, const void* g, bool v) { if (((uintptr_t)g & 15)) abort(); if (v) memcpy(s, g, 16); else memset(s, 0, 16); }
inline void commit_copies() {}
template <int N> inline void wait_copies() {}
struct Mbar { int32_t pending, init, tx; int32_t phase; };
inline Mbar& mbar(uint64_t* b) { static std::vector<std::pair<uint64_t*, Mbar>> all; for (auto& x : all) if (x.first == b) return x.second; all.reserve(64); all.push_back({b, {}}); return all.back().second; }
inline void settle(Mbar& m) { if (m.pending == 0 && m.tx == 0) { m.phase ^= 1; m.pending = m.init; emu::progress++; } }
inline void init_barrier(uint64_t* b, uint32_t n) { mbar(b) = {(int)n, (int)n, 0, 0}; }
inline void fence_barrier_init() {}
inline void publish_shared() {}
inline void arrive(uint64_t* b) { Mbar& m = mbar(b); if (--m.pending < 0) { printf("too many arrivals\n"); abort(); } settle(m); }
inline void arrive_with_copies(uint64_t* b) { arrive(b); }
inline void arrive_expecting(uint64_t* b, uint32_t n) { Mbar& m = mbar(b); m.tx += n; --m.pending; settle(m); }
inline void wait_phase(uint64_t* b, uint32_t parity) { while (mbar(b).phase == (int)parity) emu::yield(); }
