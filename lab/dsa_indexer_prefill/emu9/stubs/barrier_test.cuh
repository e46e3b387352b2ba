#pragma once
#include "async_copy.cuh"
inline bool is_cta_phase_over(uint64_t* b,uint32_t parity){ MB m;memcpy(&m,b,8); bool r=(m.phase&1)!=parity; if(getenv("EMU_NEVER")) r=false; uint64_t o[32]; collect(r,o); for(auto v:o) r=r&&v; return r;}
