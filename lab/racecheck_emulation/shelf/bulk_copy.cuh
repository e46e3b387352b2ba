#pragma once
#include "async_copy.cuh"
struct Late { void* g; const void* s; uint32_t n; void* pc; };
inline std::vector<Late>& late() { static std::vector<std::vector<Late>> all(2048); return all[emu::cur]; }
inline void finish_late() { for (auto& x : late()) if (rc_async) rc_touch(x.s, x.n, 0, x.pc); for (auto& x : late()) memcpy(x.g, x.s, x.n); late().clear(); emu::progress++; }
inline void copy_bulk(void* s, const void* g, uint32_t n, uint64_t* b) { if ((uintptr_t)g % 16 || shared_address(s) % 16 || n % 16) abort(); rc_touch(s, n, 1, __builtin_return_address(0)); const auto land = [=] { memcpy(s, g, n); Mbar& m = mbar(b); rc_release(b, m.phase); m.tx -= n; settle(m); };
  if (emu::delays) emu::events.push_back({emu::now + 1 + emu::draw(emu::delays), emu::cur, true, land}); else land(); }
inline void store_bulk(void* g, const void* s, uint32_t n) { if ((uintptr_t)g % 16 || shared_address(s) % 16 || n % 16) abort(); if (rc_async) rc_touch(s, n, 0, __builtin_return_address(0)); late().push_back({g, s, n, __builtin_return_address(0)}); }
inline void finish_bulk_stores() { for (int i = 0; i < 3; ++i) emu::yield(); finish_late(); }
