#pragma once
#include "emu.h"
inline uint32_t shared_address(const void* p) { return (uint32_t)((char*)p - cta_base()); }
inline void copy_chunk(void* s, const void* g) { if (((uintptr_t)s | (uintptr_t)g) % 16) { printf("misaligned chunk\n"); abort(); } memcpy(s, g, 16); }
inline void commit_copies() {}
template <int P> void wait_copies() {}
struct Bar { uint32_t expected : 12, pending : 12, phase : 1; int32_t tx; };
static_assert(sizeof(Bar) == 8, "");
inline Bar& bar(uint64_t* b) { return *reinterpret_cast<Bar*>(b); }
inline void bar_check(Bar& b) { if (b.pending == 0 && b.tx == 0) { b.phase ^= 1; b.pending = b.expected; } }
inline void bar_arrive(uint64_t* p) { Bar& b = bar(p); if (b.pending == 0) { printf("too many arrivals\n"); abort(); } b.pending = b.pending - 1; bar_check(b); }
inline void init_barrier(uint64_t* p, uint32_t n) { Bar& b = bar(p); b.expected = b.pending = n; b.phase = 0; b.tx = 0; }
inline void fence_barrier_init() {}
inline void publish_shared() {}
inline void arrive(uint64_t* p) { bar_arrive(p); }
inline void arrive_with_copies(uint64_t* p) { bar_arrive(p); }
inline void arrive_expecting(uint64_t* p, uint32_t n) { bar(p).tx += n; bar_arrive(p); }
inline void bar_tx(uint64_t* p, uint32_t n) { bar(p).tx -= n; bar_check(bar(p)); }
inline void wait_phase(uint64_t* p, uint32_t parity) { while (bar(p).phase == parity) yield(); }
