#pragma once
#include "emu.h"
extern long emu_ahead; extern const char* emu_w2_first; 
inline void prefetch_bulk(const void* g, uint32_t n) { ++emu_ahead; volatile char c = ((const char*)g)[0]; c = ((const char*)g)[n - 1]; (void)c; }
