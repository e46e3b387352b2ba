#pragma once
#include "async_copy.cuh"
inline void stream_chunk_or_clear(void* s, const void* g, bool v) { copy_chunk_or_clear(s, g, v); }
