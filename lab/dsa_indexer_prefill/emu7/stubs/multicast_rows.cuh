#pragma once
#include "multicast.cuh"
#include "tensor_map.cuh"
inline void copy_box_to(uint16_t ranks,void* s,const CUtensorMap* m,uint64_t* b,int c0,int c1){ if(ranks!=3) die("ranks"); for(int r=0;r<2;r++){ copy_box(in_rank((uint8_t*)s,r),m,in_rank(b,r),c0,c1); yield_fiber(); } }
