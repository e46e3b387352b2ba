#pragma once
inline int thread_index_now(){ return threadIdx.x; }
inline uint32_t lanes_before_now(){ return (1u<<(current%32))-1; }
