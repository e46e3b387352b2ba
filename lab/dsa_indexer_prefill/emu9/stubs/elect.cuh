#pragma once
#include "cuda_on_cpu.h"
inline bool is_elected(){ __ballot_sync(~0u,true); return current%32==0; }
