#pragma once
#include "cuda_on_cpu.h"
namespace { extern uint8_t memory[]; }
extern uint8_t* smem_base;
inline uint32_t shared_address(const void* p){return p==nullptr?0:(uint32_t)((uint8_t*)p-smem_base)+1024;}
struct MB{uint32_t count:16, left:16; uint32_t phase;}; static_assert(sizeof(MB)==8);
inline void init_barrier(uint64_t* b,uint32_t n){MB m;m.count=n;m.left=n;m.phase=0;memcpy(b,&m,8);}
inline void arrive(uint64_t* b){MB m;memcpy(&m,b,8); if(m.count==0) die("arrive on uninit"); m.left--; if(m.left==0){m.left=m.count;m.phase++;} memcpy(b,&m,8);}
inline void wait_phase(uint64_t* b,uint32_t parity){why[current]=100000+(int)((uint8_t*)b-smem_base);for(;;){MB m;memcpy(&m,b,8); if((m.phase&1)!=parity) return; yield_fiber();}}
template<int N> inline void sync_first(){ if(current>=N) die("sync_first by others"); meet(1,N);}
extern long published[2048];
inline void publish_shared(){}
inline void copy_chunk_or_clear(void* s,const void* g,bool v){ if((uintptr_t)s%16||(uintptr_t)g%16) die("unaligned copy"); uint8_t buf[16]={}; if(v) memcpy(buf,g,16); std::vector<uint8_t> d(buf,buf+16);
  fibers[current].pending.push_back([s,d]{memcpy(s,d.data(),16);}); memset(s,0xFF,16);}
inline void copy_chunk(void* s,const void* g){copy_chunk_or_clear(s,g,true);}
inline void commit_copies(){fibers[current].groups.push_back(fibers[current].pending.size());}
template<int N> inline void wait_copies(){Fiber&f=fibers[current]; while((int)f.groups.size()>N){size_t n=f.groups[0]; for(size_t i=0;i<n;i++) f.pending[i](); f.pending.erase(f.pending.begin(),f.pending.begin()+n); f.groups.erase(f.groups.begin()); for(auto&g:f.groups) g-=n;}
  if(N==0&&f.groups.empty()&&!f.pending.empty()){ for(auto&p:f.pending)p(); f.pending.clear(); }}
