#include "cuda_on_cpu.h"
dim threadIdx, blockIdx, gridDim, blockDim; Fiber* fibers; int current; long switches; WarpState warps[64]; int lane_gen[2048]; Bar bars[16]; long published[2048]; float e4m3[256];
uint8_t* smem_base; int why[2048];
static jmp_buf main_jb; static std::function<void()>* body_ptr; static int total; static long idle;
void die(const char* m){fprintf(stderr,"EMU: %s (thread %d, block %u)\n",m,current,blockIdx.x);abort();}
static void next(){ // to the next unfinished fiber
  int n=total; static int mode=getenv("EMU_RANDOM")?atoi(getenv("EMU_RANDOM")):0; static unsigned long long rs=88172645463325252ull+mode*7919; int jump=0; if(mode==1){rs^=rs<<13;rs^=rs>>7;rs^=rs<<17; jump=(int)((rs>>11)%n);} for(int i=1;i<=n;i++){int c= mode==2 ? (current-i+2*n)%n : mode==3 ? (current+i*37)%n : (current+jump+i)%n; if(!fibers[c].done){current=c;threadIdx.x=c; if(++switches%200000000L==0){ for(int f=0;f<n;f+=(f%32==0?1:31)) fprintf(stderr,"f%d %s %d gen%d\n",f,fibers[f].done?"done":"",why[f],lane_gen[f]); die("hang?");} if(!fibers[c].started){fibers[c].started=true; setcontext(&fibers[c].ctx);} _longjmp(fibers[c].jb,1);} }
  _longjmp(main_jb,1);
}
void yield_fiber(){ static long since=0; if(_setjmp(fibers[current].jb)==0) next(); }
static void entry(){ (*body_ptr)(); fibers[current].done=true; next(); }
void run_cta(std::function<void()> body,int threads){
  static Fiber* pool=nullptr; if(!pool){pool=new Fiber[1024]; for(int i=0;i<1024;i++) pool[i].stack=(char*)aligned_alloc(64,128*1024);}
  fibers=pool; total=threads; blockDim.x=threads; body_ptr=&body; memset(lane_gen,0,sizeof lane_gen); memset((void*)warps,0,sizeof warps); memset((void*)bars,0,sizeof bars);
  for(int i=0;i<threads;i++){Fiber&f=fibers[i]; f.started=f.done=false; f.pending.clear(); f.groups.clear(); getcontext(&f.ctx); f.ctx.uc_stack.ss_sp=f.stack; f.ctx.uc_stack.ss_size=128*1024; f.ctx.uc_link=nullptr; makecontext(&f.ctx,entry,0);}
  if(_setjmp(main_jb)==0){ current=threads-1; next(); }
  for(int i=0;i<threads;i++) if(!fibers[i].pending.empty()) die("copies left behind");
}
#include "async_copy.cuh"
#include "feed.cuh"
#include "plan.cuh"
#include "programmatic_launch.cuh"
#include "register_shares.cuh"
#include "score.cuh"
#include "select.cuh"

namespace {

__device__ __forceinline__ void init_barriers(SharedMemory& shared) {
#pragma unroll
  for (int stage = 0; stage < STAGES; ++stage) {
    init_barrier(&shared.full[stage], FEEDING);
    init_barrier(&shared.free[stage], COMPUTING / 32);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    init_barrier(&shared.block_free[i], COMPUTING / 32);
    init_barrier(&shared.issued[i], COMPUTING / 32 / 2);
  }
}

// Grid: one CTA an SM, or fewer
template <Mode MODE>
__global__ void __launch_bounds__(THREADS, 1) score_kernel(const __grid_constant__ Args args) {
  
  SharedMemory& shared = *reinterpret_cast<SharedMemory*>(memory);
  if (threadIdx.x == 0) init_barriers(shared);
  allow_next_launch();
  if (MODE != Mode::REPAIR) divide_work<MODE>(shared, args);  // from inputs alone
  __syncthreads();
  wait_for_launches_before();
  if (threadIdx.x < COMPUTING) {
    take_registers<Tuning::COMPUTING_REGISTERS>();
    compute<MODE>(shared, args);
  } else {
    give_registers<Tuning::FEEDING_REGISTERS>();
    feed<MODE>(shared, args);
  }
}


alignas(1024) uint8_t memory[232448];
// Areas for candidates: one a query, and four a CTA.
int64_t count_areas(const Args& args) { return args.num_queries + MOST_CTAS * BLOCK; }

// Pointers into the table, [words] int32. Returns how many words it takes.
int64_t lay_out_table(Args& args, int* table) {
  const int64_t queries = args.num_queries, blocks = (queries + BLOCK - 1) / BLOCK;
  int* at = table;
  args.shares = reinterpret_cast<int2*>(at), at += 2 * blocks;
  args.counts = at, at += count_areas(args) * SEGMENTS;
  args.thresholds = reinterpret_cast<float*>(at), at += queries;
  args.failed = at, at += 1 + queries;
  return at - table;
}


}
extern "C" int emu_run(const uint8_t* q,const uint8_t* k,const float* s,const float* w,const int* st,const int* en,int* ids,int Q,int N,int sms,int repair_ctas,int most_candidates,
   int* table,uint8_t* area,int* failed_out,float* thresholds,float* samples_out){
  smem_base=memory;
  for(int i=0;i<256;i++){int e=i>>3&15,m=i&7; float v=e==0?ldexpf(m,-9):ldexpf(8+m,e-10); if((i&127)==127)v=NAN; e4m3[i]=i&128?-v:v;}
  Args a={}; a.query=q;a.codes=k;a.scales=s;a.weights=w;a.starts=st;a.ends=en;a.ids=ids;a.samples=(float*)area;a.candidates=(uint2*)area;a.keys=(uint32_t*)area;
  a.num_queries=Q;a.num_keys=N;a.slots=(N+STRETCH-1)/STRETCH;a.most_candidates=most_candidates;
  lay_out_table(a,table);
  auto go=[&](auto kernel,int ctas,int threads){ gridDim.x=ctas; for(int c=0;c<ctas;c++){ memset(memory,0xEE,sizeof memory); blockIdx.x=c; run_cta([&]{kernel(a);},threads);} };
  if(N>Tuning::WHOLE) go(score_kernel<Mode::SAMPLE>,sms,THREADS);
  if(samples_out) memcpy(samples_out,area,sizeof(float)*(size_t)Q*a.slots);
  if(N>TOPK){ go(threshold_kernel,Q,GUESSING); memcpy(thresholds,a.thresholds,4*Q); go(score_kernel<Mode::FILTER>,sms,THREADS);}
  go(select_kernel,Q,SELECTING);
  *failed_out= N>TOPK? a.failed[0]:0;
  if(N>TOPK) go(score_kernel<Mode::REPAIR>,repair_ctas,THREADS);
  return 0;
}
