#pragma once
#include "../machine.h"
inline uint32_t shared_address(const void* p) {
  const long d = static_cast<const uint8_t*>(p) - emu::mem();
  if (d < 0 || d >= (long)MEMORY_BYTES) { printf("not shared\n"); abort(); }
  return d;
}
inline void copy_chunk(void* s, const void* g) { memcpy(s, g, 16); }
inline long landed[MOST_THREADS];
inline void copy_chunk_or_clear(void* s, const void* g, bool v) { if (((uintptr_t)g & 15)) abort();
  if (emu::delays) { const long at = emu::now + 1 + emu::draw(emu::delays); landed[emu::cur] = std::max(at, landed[emu::cur] > emu::now + 4 * emu::delays ? 0 : landed[emu::cur]); emu::events.push_back({at, emu::cur, true, [=] { if (v) memcpy(s, g, 16); else memset(s, 0, 16); }}); return; } if (v) memcpy(s, g, 16); else memset(s, 0, 16); }
inline void commit_copies() {}
template <int N> inline void wait_copies() { for (bool any = emu::delays > 0; any;) { any = false; for (auto& e : emu::events) any |= e.copies && e.thread == emu::cur; if (any) emu::yield(); } }
struct Mbar { int32_t pending, init, tx; int32_t phase; void* self; int32_t count; };
inline Mbar& mbar(uint64_t* b) { static Mbar* all = (Mbar*)calloc(MOST_CTAS * (MEMORY_BYTES / 8), sizeof(Mbar)); return all[((uint8_t*)b - emu::memories[0]) / 8]; }
inline void settle(Mbar& m, uint64_t* b = nullptr) { if (m.pending == 0 && m.tx == 0) { m.phase ^= 1; m.count++; rc_clear(m.self, m.phase); m.pending = m.init; emu::progress++; } }
inline void init_barrier(uint64_t* b, uint32_t n) { mbar(b) = {(int)n, (int)n, 0, 0, b, 0}; }
inline void fence_barrier_init() {}
inline void publish_shared() {}
inline void arrive(uint64_t* b) { Mbar& m = mbar(b); rc_release(b, m.phase); if (--m.pending < 0) { printf("too many arrivals\n"); abort(); } settle(m); }
inline void arrive_with_copies(uint64_t* b) { if (emu::delays) emu::events.push_back({std::max(landed[emu::cur], emu::now) + 1, emu::cur, true, [=] { arrive(b); }}); else arrive(b); }
inline void arrive_expecting(uint64_t* b, uint32_t n) { Mbar& m = mbar(b); rc_release(b, m.phase); m.tx += n; --m.pending; settle(m); }
inline void wait_phase(uint64_t* b, uint32_t parity) { emu::waits[emu::cur] = {b, (int)parity}; emu::block(&mbar(b).phase, (int)parity); emu::waits[emu::cur] = {nullptr, 0}; }
// A wait whose phase is known: the barrier must be in it or in the next one whenever it is looked at.
inline void wait_exact(uint64_t* b, int phase) { emu::waits[emu::cur] = {b, phase}; const Mbar& m = mbar(b);
  const auto look = [&] { if (m.count != phase && m.count != phase + 1) { static int said; emu::ambiguous++; if (said++ < 3) { printf("AMBIGUOUS thread %d barrier at %ld: waits for the end of phase %d, %d have ended\n", emu::cur, (long)((uint8_t*)b - emu::mem()), phase, m.count); fflush(stdout); } } };
  look(); while (m.phase == (phase & 1)) { emu::block(&m.count, m.count); look(); } emu::waits[emu::cur] = {nullptr, 0}; }
