#pragma once
#include "async_copy.cuh"
static inline void copy_chunk_where(bool w, void* to, const void* from) { if (w) copy_chunk(to, from); }
