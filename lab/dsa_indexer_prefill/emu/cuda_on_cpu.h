#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <csetjmp>
#include <ucontext.h>
#include <vector>
#include <functional>
#include <algorithm>
#define __device__
#define __global__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ static
struct int2{int x,y;}; struct uint2{uint32_t x,y;}; struct alignas(16) int4{int x,y,z,w;}; struct alignas(16) float4{float x,y,z,w;};
struct dim{unsigned x=0,y=1,z=1;};
extern dim threadIdx, blockIdx, gridDim, blockDim;
inline int2 make_int2(int a,int b){return {a,b};}
inline uint2 make_uint2(uint32_t a,uint32_t b){return {a,b};}
using std::min; using std::max;
struct Fiber{ucontext_t ctx; jmp_buf jb; char* stack; bool started=false, done=false; std::vector<std::function<void()>> pending; std::vector<size_t> groups;};
extern Fiber* fibers; extern int current; extern long switches;
void yield_fiber(); extern int why[2048];
[[noreturn]] void die(const char*);
// warp collectives
struct WarpState{uint64_t values[2][32]; int arrived[2]={0,0}; int left[2]={0,0}; };
extern WarpState warps[64]; 
extern int lane_gen[2048];
inline void collect(uint64_t v, uint64_t (&out)[32]){
  int w=current/32,l=current%32; WarpState& s=warps[w]; int g=lane_gen[current]&1; lane_gen[current]++;
  why[current]=1; while(s.left[g]>0) yield_fiber(); why[current]=2;           // slot still being read from two generations ago
  s.values[g][l]=v; s.arrived[g]++;
  while(s.arrived[g]<32) yield_fiber();
  memcpy(out,s.values[g],sizeof out);
  s.left[g]++;
  if(s.left[g]==32){s.left[g]=0;s.arrived[g]=0;}
  else while(s.left[g]!=0) yield_fiber();
}
template<class T> inline uint64_t tobits(T x){uint64_t u=0;memcpy(&u,&x,sizeof x);return u;}
template<class T> inline T frombits(uint64_t u){T x;memcpy(&x,&u,sizeof x);return x;}
template<class T> inline T __shfl_xor_sync(uint32_t,T x,int m){uint64_t o[32];int l=current%32;collect(tobits(x),o);return frombits<T>(o[l^m]);}
template<class T> inline T __shfl_up_sync(uint32_t,T x,int d){uint64_t o[32];int l=current%32;collect(tobits(x),o);return frombits<T>(o[l>=d?l-d:l]);}
template<class T> inline T __shfl_sync(uint32_t,T x,int s){uint64_t o[32];collect(tobits(x),o);return frombits<T>(o[s&31]);}
inline uint32_t __ballot_sync(uint32_t,bool p){uint64_t o[32];collect(p,o);uint32_t r=0;for(int i=0;i<32;i++)r|=uint32_t(o[i]!=0)<<i;return r;}
inline bool __any_sync(uint32_t m,bool p){return __ballot_sync(m,p)!=0;}
inline int __reduce_add_sync(uint32_t,int x){uint64_t o[32];collect(tobits(x),o);int r=0;for(auto v:o)r+=frombits<int>(v);return r;}
inline uint32_t __reduce_min_sync(uint32_t,uint32_t x){uint64_t o[32];collect(tobits(x),o);uint32_t r=~0u;for(auto v:o)r=std::min(r,(uint32_t)v);return r;}
inline uint32_t __reduce_max_sync(uint32_t,uint32_t x){uint64_t o[32];collect(tobits(x),o);uint32_t r=0;for(auto v:o)r=std::max(r,(uint32_t)v);return r;}
inline int __popc(uint32_t x){return __builtin_popcount(x);}
inline int __clz(uint32_t x){return x?__builtin_clz(x):32;}
template<class T> inline T __ldg(const T* p){return *p;}
inline int atomicAdd(int* p,int v){int o=*p;*p+=v;return o;}
inline int atomicMax(int* p,int v){int o=*p;*p=std::max(*p,v);return o;}
inline uint32_t atomicMax(uint32_t* p,uint32_t v){auto o=*p;*p=std::max(*p,v);return o;}
inline uint32_t atomicMin(uint32_t* p,uint32_t v){auto o=*p;*p=std::min(*p,v);return o;}
inline int __float_as_int(float f){int i;memcpy(&i,&f,4);return i;}
inline uint32_t __float_as_uint(float f){uint32_t i;memcpy(&i,&f,4);return i;}
inline float __uint_as_float(uint32_t f){float i;memcpy(&i,&f,4);return i;}
struct Bar{int arrived=0; long gen=0;}; extern Bar bars[16];
inline void meet(int id,int n){why[current]=10+id;Bar&b=bars[id];long g=b.gen; if(++b.arrived==n){b.arrived=0;b.gen++;} else while(b.gen==g) yield_fiber();}
inline void __syncthreads(){meet(0,blockDim.x);}
void run_cta(std::function<void()> body,int threads);
