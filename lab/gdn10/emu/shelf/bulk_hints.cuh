#pragma once
#include "bulk_copy.cuh"
inline long prefetched;
inline void prefetch_bulk(const void* g, uint32_t n) { const auto* a = (const uint8_t*)g; if ((uintptr_t)g % 16 || n % 16 || a < emu::v_first || a + n > emu::v_last) { if (getenv("STATES_PREFETCHED")) return; printf("PREFETCH OUTSIDE OF V\n"); fflush(stdout); abort(); } prefetched += n; }
inline void finish_bulk_reads() { bulk_commit(); bulk_wait(0, true); }
