import sys
root='clones/long7/solutions/dsa_indexer_prefill/'
s=open(root+'prefill.cu').read()
a=s.index('#include "async_copy.cuh"'); b=s.index('void check_error')
dev=s[a:b].replace('extern __shared__ __align__(1024) uint8_t memory[];','uint8_t* memory=smem_base;')
c=s.index("// Keys of which one is sampled."); d=s.index('// Shapes and dtypes are checked by the caller')
table=s[c:d]
open('emu.cpp','w').write('''#include "cuda_on_cpu.h"
dim threadIdx, blockIdx, gridDim, blockDim; Fiber* fibers; int current; long switches; WarpState warps[64]; int lane_gen[2048]; Bar bars[64]; int ctas_at_once=1; int first_block; alignas(1024) uint8_t memories[2][232448]; long published[2048]; float e4m3[256];
int why[2048];
static jmp_buf main_jb; static std::function<void()>* body_ptr; static int total; static long idle;
void die(const char* m){fprintf(stderr,"EMU: %s (thread %d, block %u)\\n",m,current,blockIdx.x);abort();}
static void next(){ // to the next unfinished fiber
  int n=total; static int mode=getenv("EMU_RANDOM")?atoi(getenv("EMU_RANDOM")):0; static unsigned long long rs=88172645463325252ull+mode*7919; int jump=0; if(mode==1){rs^=rs<<13;rs^=rs>>7;rs^=rs<<17; jump=(int)((rs>>11)%n);} for(int i=1;i<=n;i++){int c= mode==2 ? (current-i+2*n)%n : mode==3 ? (current+i*37)%n : (current+jump+i)%n; if(!fibers[c].done){current=c;threadIdx.x=c%blockDim.x; blockIdx.x=first_block+c/blockDim.x; if(++switches%200000000L==0){ for(int f=0;f<n;f+=(f%32==0?1:31)) fprintf(stderr,"f%d %s %d gen%d\\n",f,fibers[f].done?"done":"",why[f],lane_gen[f]); die("hang?");} if(!fibers[c].started){fibers[c].started=true; setcontext(&fibers[c].ctx);} _longjmp(fibers[c].jb,1);} }
  _longjmp(main_jb,1);
}
void yield_fiber(){ static long since=0; if(_setjmp(fibers[current].jb)==0) next(); }
static void entry(){ (*body_ptr)(); fibers[current].done=true; next(); }
void run_cta(std::function<void()> body,int threads){
  static Fiber* pool=nullptr; if(!pool){pool=new Fiber[2048]; for(int i=0;i<2048;i++) pool[i].stack=(char*)aligned_alloc(64,128*1024);}
  fibers=pool; blockDim.x=threads; first_block=blockIdx.x; threads*=ctas_at_once; total=threads; body_ptr=&body; memset(lane_gen,0,sizeof lane_gen); memset((void*)warps,0,sizeof warps); memset((void*)bars,0,sizeof bars);
  for(int i=0;i<threads;i++){Fiber&f=fibers[i]; f.started=f.done=false; f.pending.clear(); f.groups.clear(); getcontext(&f.ctx); f.ctx.uc_stack.ss_sp=f.stack; f.ctx.uc_stack.ss_size=128*1024; f.ctx.uc_link=nullptr; makecontext(&f.ctx,entry,0);}
  if(_setjmp(main_jb)==0){ current=threads-1; next(); }
  for(int i=0;i<threads;i++) if(!fibers[i].pending.empty()) die("copies left behind");
}
'''+dev+'''
'''+table+'''
}
extern "C" int emu_run(const uint8_t* q,const uint8_t* k,const float* s,const float* w,const int* st,const int* en,int* ids,int Q,int N,int sms,int repair_ctas,int most_candidates,
   int* table,uint8_t* area,int* failed_out,float* thresholds,float* samples_out){
  for(int i=0;i<256;i++){int e=i>>3&15,m=i&7; float v=e==0?ldexpf(m,-9):ldexpf(8+m,e-10); if((i&127)==127)v=NAN; e4m3[i]=i&128?-v:v;}
  Args a={}; a.query=q;a.codes=k;a.scales=s;a.weights=w;a.starts=st;a.ends=en;a.ids=ids;a.samples=(float*)area;a.candidates=(uint2*)area;a.keys=(uint32_t*)area;
  a.num_queries=Q;a.num_keys=N;a.stretch=stretch_of(N);a.slots=(N+a.stretch-1)/a.stretch; a.map.base=k;a.map.rows=N;a.map.box=ROWS;a.most_candidates=most_candidates;
  lay_out_table(a,table);
  auto go=[&](auto kernel,int ctas,int threads,int cl=1){ ctas_at_once=cl; gridDim.x=ctas; for(int c=0;c<ctas;c+=cl){ memset(memories,0xEE,sizeof memories); blockIdx.x=c; run_cta([&]{kernel(a);},threads);} };
  if(N>Tuning::WHOLE) go(score_kernel<Mode::SAMPLE>,sms,THREADS);
  if(samples_out) memcpy(samples_out,area,sizeof(float)*(size_t)Q*a.slots);
  if(N>TOPK){ if(getenv("EMU_WARPS")||a.slots<=FEW_SLOTS) go(warp_threshold_kernel,(Q+7)/8,GUESSING); else go(threshold_kernel,Q,GUESSING); memcpy(thresholds,a.thresholds,4*Q); go(score_kernel<Mode::FILTER>,sms/PAIR*PAIR,THREADS,PAIR);}
  go(select_kernel,Q,SELECTING);
  *failed_out= N>TOPK? a.failed[0]:0;
  if(N>TOPK) go(score_kernel<Mode::REPAIR>,repair_ctas,THREADS);
  return 0;
}
''')
