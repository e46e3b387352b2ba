#pragma once
#include "async_copy.cuh"
// Bulk stores of a thread, in groups. A store reads its source at the last moment that a wait for its reads allows, or (BULK=1) at a random one
// before; (BULK=2) what it reads lands in device memory at the last moment, too: at a wait for the stores themselves. A wait takes a random time.
struct Late { uint8_t* g; const uint8_t* s; uint32_t n; void* pc; int group; long at; bool read; std::vector<uint8_t> bytes; };
struct LateThread { std::vector<Late> stores; int group = 0; };
inline LateThread& late() { static std::vector<LateThread> all(MOST_THREADS); return all[emu::cur]; }
inline int bulk_mode_now = 2, bulk_most_now = 60; inline int bulk_mode() { return bulk_mode_now; }
inline int bulk_most() { return bulk_most_now; }
inline void bulk_read(Late& x) { if (x.read) return; x.read = true; if (rc_async) rc_touch(x.s, x.n, 0, x.pc); x.bytes.assign(x.s, x.s + x.n); }
inline void bulk_wait(int groups, bool reads) {  // all but the last `groups`
  LateThread& mine = late();
  const int turns = getenv("ORDER") ? emu::draw(bulk_most()) : 3;
  for (int i = 0; i < turns; ++i) { emu::progress++; emu::yield(); for (auto& x : mine.stores) if (bulk_mode() == 1 && x.at <= emu::now) bulk_read(x); }
  for (auto& x : mine.stores) if (x.group < mine.group - groups) bulk_read(x);
  for (auto& x : mine.stores) if (x.read && (!reads || bulk_mode() != 2) && x.group < mine.group - groups) { memcpy(x.g, x.bytes.data(), x.n); x.n = 0; }
  mine.stores.erase(std::remove_if(mine.stores.begin(), mine.stores.end(), [](auto& x) { return x.n == 0; }), mine.stores.end());
  emu::progress++;
}
inline void bulk_commit() { late().group++; }
inline void finish_late() { bulk_commit(); bulk_wait(0, false); }
// What is counted must have landed.
inline void check_landed(const void* p, size_t n) { const auto* a = (const uint8_t*)p; for (auto& x : late().stores) if (x.g < a + n && a < x.g + x.n) { if (emu::bad < 1) printf("COUNTED BEFORE IT HAS LANDED thread %d\n", emu::cur); emu::bad++; } }
inline void copy_bulk_passing(void* s, const void* g, uint32_t n, uint64_t* b);
inline void copy_bulk(void* s, const void* g, uint32_t n, uint64_t* b) { copy_bulk_passing(s, g, n, b); }
inline void copy_bulk_passing(void* s, const void* g, uint32_t n, uint64_t* b) { if ((uintptr_t)g % 16 || shared_address(s) % 16 || n % 16) abort(); rc_touch(s, n, 1, __builtin_return_address(0)); const auto land = [=] { memcpy(s, g, n); Mbar& m = mbar(b); rc_release(b, m.phase); m.tx -= n; settle(m); };
  if (emu::delays) emu::events.push_back({emu::now + 1 + emu::draw(emu::delays), emu::cur, true, land}); else land(); }
inline void store_bulk_kept(void* g, const void* s, uint32_t n) { if ((uintptr_t)g % 16 || shared_address(s) % 16 || n % 16) abort(); if (rc_async) rc_touch(s, n, 0, __builtin_return_address(0));
  late().stores.push_back({(uint8_t*)g, (const uint8_t*)s, n, __builtin_return_address(0), late().group, emu::now + 1 + emu::draw(400), false, {}}); }
inline void finish_bulk_stores() { bulk_commit(); bulk_wait(0, false); }
inline bool emu::late_left() { return !late().stores.empty(); }
