#pragma once
#include "async_copy.cuh"
inline void copy_bulk(void* s, const void* g, uint32_t n, uint64_t* b) { if ((uintptr_t)g % 16 || shared_address(s) % 16 || n % 16) abort(); memcpy(s, g, n); Mbar& m = mbar(b); m.tx -= n; settle(m); }
inline void store_bulk(void* g, const void* s, uint32_t n) { if ((uintptr_t)g % 16 || shared_address(s) % 16 || n % 16) abort(); memcpy(g, s, n); }
inline void finish_bulk_stores() {}
