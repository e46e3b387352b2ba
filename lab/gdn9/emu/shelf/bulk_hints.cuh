#pragma once
#include "bulk_copy.cuh"
inline void prefetch_bulk(const void* g, uint32_t n) { if ((uintptr_t)g % 16 || n % 16) abort(); }
inline void finish_bulk_reads() { for (int i = 0; i < 3; ++i) emu::yield(); finish_late(); }
