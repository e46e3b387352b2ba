#pragma once
#include "async_copy.cuh"
#include <cuda.h>
inline void copy_box(void* s,const CUtensorMap* m,uint64_t* b,int c0,int c1){
  if(c0!=0||c1<0) die("box"); if((uintptr_t)s%1024) die("box place");
  for(uint32_t r=0;r<m->box;r++) for(int c=0;c<8;c++){ uint8_t* to=(uint8_t*)s+r*128+((c^(r%8))<<4);
    if((uint64_t)c1+r<m->rows) memcpy(to,m->base+((uint64_t)c1+r)*128+c*16,16); else memset(to,0,16); }
  transact(b,-(int)(m->box*128)); }
inline void prefetch_map(const CUtensorMap*){}
