#pragma once
#include "async_copy.cuh"
inline void wait_own_phase(uint64_t* b,uint32_t p){wait_phase(b,p);}
