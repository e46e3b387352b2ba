#pragma once
#include "async_copy.cuh"
inline void copy_word(void* s,const void* g){ if((uintptr_t)s%4||(uintptr_t)g%4) die("unaligned word"); uint8_t buf[4]; memcpy(buf,g,4); std::vector<uint8_t> d(buf,buf+4);
  fibers[current].pending.push_back([s,d]{memcpy(s,d.data(),4);}); memset(s,0xFF,4);}
