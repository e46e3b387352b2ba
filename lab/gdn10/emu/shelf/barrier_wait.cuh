#pragma once
#include "async_copy.cuh"
inline void wait_cta_phase(uint64_t* b, uint32_t parity) { wait_phase(b, parity); }
