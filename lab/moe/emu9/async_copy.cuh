#pragma once
#include "emu.h"
inline uint32_t shared_address(const void* p) { return (uint32_t)((char*)p - cta_base()); }
struct Copy { char* to; const char* from; int bytes; };
extern std::vector<std::vector<std::vector<Copy>>> emu_copies;  // thread, group
inline std::vector<std::vector<Copy>>& my_copies() { return emu_copies[cur->cta * emu_block_dim.x + cur->tid.x]; }
inline void add_copy(void* s, const void* g, int n) { auto& m = my_copies(); if (m.empty()) m.emplace_back(); m.back().push_back({(char*)s, (const char*)g, n}); }
inline void copy_chunk(void* s, const void* g) { if (((uintptr_t)s | (uintptr_t)g) % 16) { printf("misaligned chunk\n"); abort(); } add_copy(s, g, 16); }
inline void commit_copies() { auto& m = my_copies(); if (m.empty()) m.emplace_back(); m.emplace_back(); }
inline void land(int keep) { auto& m = my_copies(); while ((int)m.size() - 1 > keep) { for (auto& c : m[0]) memcpy(c.to, c.from, c.bytes); m.erase(m.begin()); } }
template <int P> void wait_copies() { land(P); }
struct Bar { uint32_t expected : 12, pending : 12, phase : 1; int32_t tx; };
static_assert(sizeof(Bar) == 8, "");
inline Bar& bar(uint64_t* b) { return *reinterpret_cast<Bar*>(b); }
inline void bar_check(Bar& b) { if (b.pending == 0 && b.tx == 0) { b.phase ^= 1; b.pending = b.expected; } }
inline void bar_arrive(uint64_t* p) { Bar& b = bar(p); if (b.pending == 0) { printf("too many arrivals\n"); abort(); } b.pending = b.pending - 1; bar_check(b); }
inline void init_barrier(uint64_t* p, uint32_t n) { Bar& b = bar(p); b.expected = b.pending = n; b.phase = 0; b.tx = 0; }
inline void fence_barrier_init() {}
inline void publish_shared() {}
inline void arrive(uint64_t* p) { bar_arrive(p); }
struct Late { std::vector<Copy> copies; uint64_t* barrier; };
extern std::vector<Late> emu_late;
inline void arrive_with_copies(uint64_t* p) { auto& m = my_copies(); Late l; for (auto& g : m) l.copies.insert(l.copies.end(), g.begin(), g.end()); m.clear(); l.barrier = p; emu_late.push_back(l); }
inline void arrive_expecting(uint64_t* p, uint32_t n) { bar(p).tx += n; bar_arrive(p); }
inline void bar_tx(uint64_t* p, uint32_t n) { bar(p).tx -= n; bar_check(bar(p)); }
inline void wait_phase(uint64_t* p, uint32_t parity) { while (bar(p).phase == parity) yield(); }
