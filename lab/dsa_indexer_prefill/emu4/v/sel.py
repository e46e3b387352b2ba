s=open('emu.cpp').read()
i=s.index('extern "C" int emu_run')
s=s[:i]+r'''
#include <random>
static uint32_t skeys[20480]; static int sids[20480];
// selection alone: find_rank + store_best as select_kernel calls them
extern "C" long emu_select(const float* scores,int count,int threads_mode,int* ids){
  smem_base=memory; RankMemory& m=*reinterpret_cast<RankMemory*>(memory); memset(memory,0xEE,sizeof(RankMemory));
  uint32_t least=~0u,most=0; for(int i=0;i<count;i++){skeys[i]=key_of(scores[i]); sids[i]=i; least=min(least,skeys[i]); most=max(most,skeys[i]);}
  run_cta([&]{
    const auto key_at=[&](int i){return skeys[i];};
    const Bracket b=find_rank<SELECTING,4>(m,count,TOPK,least,most,FEW,key_at);
    store_best<SELECTING>(m,count,TOPK,b,key_at,[&](int i){return sids[i];},ids);
  },SELECTING); return 0; }
extern "C" int soak(int seconds,uint64_t seed){
  std::mt19937_64 r(seed); std::normal_distribution<float> n; static float sc[20480]; static int ids[2048]; static float a[20480]; int done=0; time_t end=time(0)+seconds;
  while(time(0)<end){
    int count=2048+r()%(r()%4==0?8:4864); int kind=r()%6; float scale=57, shift=(r()%2)?120:0;
    for(int i=0;i<count;i++){ float x=n(r)*scale; x= kind==5? x : shift+fabsf(x); sc[i]=x; if(kind==3) sc[i]=roundf(x); if(kind==4) sc[i]=roundf(x/64)*64; }
    if(kind==1||kind==3||kind==5) for(int j=0;j<5;j++) sc[r()%count]=n(r)*6e7f;
    if(kind==2) for(int j=0;j<5;j++) sc[r()%count]=n(r)*3e37f;
    for(int i=0;i<2048;i++) ids[i]=-7;
    emu_select(sc,count,0,ids);
    memcpy(a,sc,sizeof(float)*count); std::sort(a,a+count,[](float x,float y){return x>y;});
    static float g[2048]; static bool seen[20480]; memset(seen,0,sizeof seen);
    for(int i=0;i<2048;i++){ if(ids[i]<0||ids[i]>=count||seen[ids[i]]) {printf("BAD id %d at %d count %d kind %d\n",ids[i],i,count,kind); return -1;} seen[ids[i]]=true; g[i]=sc[ids[i]]; }
    std::sort(g,g+2048,[](float x,float y){return x>y;});
    if(memcmp(g,a,sizeof g)) { for(int i=0;i<2048;i++) if(g[i]!=a[i]) {printf("WRONG rank %d want %g got %g count %d kind %d\n",i,a[i],g[i],count,kind); return -2;} }
    done++; }
  return done; }
'''
s=s.replace('#include "cuda_on_cpu.h"','#include <ctime>\n#include "cuda_on_cpu.h"',1)
open('sel.cpp','w').write(s)
