#pragma once
#include "async_copy.cuh"
inline void wait_cta_phase(uint64_t* p, uint32_t parity) { wait_phase(p, parity); }
