#pragma once
#include "tensor_map.cuh"
extern long emu_once;
inline void copy_box_once(void* s, const CUtensorMap* m, uint64_t* b, int c0, int c1) { ++emu_once; do_box(s, m, b, {c0, c1}); }
inline void copy_box_once(void* s, const CUtensorMap* m, uint64_t* b, int c0, int c1, int c2, int c3, int c4) { ++emu_once; do_box(s, m, b, {c0, c1, c2, c3, c4}); }
