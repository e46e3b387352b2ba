#pragma once
#include "emu.h"
inline void emu_pause() { for (int i = rand() % 4; i-- > 0;) yield(); }
inline uint64_t load_relaxed(const uint64_t* w) { emu_pause(); uint64_t v = *w; emu_pause(); return v; }
inline uint4 load_relaxed(const uint4* w) { emu_pause(); uint2 a = ((const uint2*)w)[0]; emu_pause(); uint2 b = ((const uint2*)w)[1]; return {a.x, a.y, b.x, b.y}; }
inline void store_half(uint2* h, uint32_t v, uint32_t t) { emu_pause(); *h = {v, t}; }
inline void store_halves(uint4* w, uint2 v, uint64_t n) { emu_pause(); ((uint2*)w)[1] = {v.y, (uint32_t)(n >> 32)}; emu_pause(); ((uint2*)w)[0] = {v.x, (uint32_t)n}; }
inline bool has_nonce(uint4 w, uint64_t n) { return w.y == (uint32_t)n && w.w == (uint32_t)(n >> 32); }
template <int BITS> inline void begin_count(uint64_t* w, uint64_t seen, uint64_t nonce) { if (seen >> BITS == nonce << BITS >> BITS) return; emu_pause(); if (*w == seen) *w = nonce << BITS; }
extern long emu_bad; 
template <int BITS> inline int take_count(uint64_t* w) { emu_pause(); uint64_t b = (*w)++; return (int)(b & ((uint64_t{1} << BITS) - 1)); }
inline void count_release(uint64_t* w) { ++*w; }
inline uint64_t load_acquire(const uint64_t* w) { return *w; }
