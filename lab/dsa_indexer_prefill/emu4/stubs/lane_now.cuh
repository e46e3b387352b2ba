#pragma once
inline int thread_index_now(){ return current; }
inline uint32_t lanes_before_now(){ return (1u<<(current%32))-1; }
