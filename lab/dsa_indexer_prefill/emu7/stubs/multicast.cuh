#pragma once
#include "cluster.cuh"
template<class T> inline T* in_rank(T* p,uint32_t rank){ if(rank>=(unsigned)ctas_at_once) die("rank"); size_t off=(uint8_t*)p-smem_base; if(off>=SMEM) die("not mine"); return (T*)(memories[rank]+off); }
inline void arrive_at(uint64_t* b,uint32_t rank){ yield_fiber(); arrive(in_rank(b,rank)); }
inline void meet_cluster(){ arrive_cluster(); wait_cluster(); }
