#pragma once
#include "async_copy.cuh"
inline int cl_gen[2048];
inline void arrive_cluster(){ Bar&b=bars[40]; cl_gen[current]=b.gen; if(++b.arrived==(int)blockDim.x*ctas_at_once){b.arrived=0;b.gen++;} }
inline void wait_cluster(){ Bar&b=bars[40]; why[current]=40; while(b.gen==cl_gen[current]) yield_fiber(); }
