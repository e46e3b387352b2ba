#pragma once
#include "async_copy.cuh"
// lands later, with the copies of others
inline void copy_bulk(void* s, const void* g, uint32_t n, uint64_t* b);
struct LateBulk { char* to; const char* from; uint32_t bytes; uint64_t* bar; };
extern std::vector<LateBulk> emu_bulk;
inline void copy_bulk(void* s, const void* g, uint32_t n, uint64_t* b) { if (((uintptr_t)s | (uintptr_t)g | n) % 16) { printf("bulk align\n"); abort(); } emu_bulk.push_back({(char*)s, (const char*)g, n, b}); }
