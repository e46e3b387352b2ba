#include "emu.h"
#include "programmatic_launch.cuh"
#include "plan.cuh"
#include "route.cuh"
#include "feed.cuh"
#include "multiply.cuh"
#include "combine.cuh"

void run_grid(dim3 grid, int threads, size_t shared, std::function<void()> f, unsigned seed);
extern dim3 emu_grid; long emu_once = 0;
#define gridDim emu_grid
#include "extracted.h"
template <class S> void go(Args& args, const void* w1, const void* w2, int ctas, unsigned seed) {
  describe_weights<S>(args, w1, w2);
  run_grid(dim3(ctas), THREADS, sizeof(SharedMemory<S>), [&] {
    auto& shared = *reinterpret_cast<SharedMemory<S>*>(cta_base());
    if (threadIdx.x == 0) init_barriers(shared);
    __syncthreads();
    if (threadIdx.x < MULTIPLYING) multiply_units(shared, args);
    else if (threadIdx.x < MULTIPLYING + 32) feed_weights(shared, args);
    else feed_rows(shared, args);
  }, seed);
}
dim3 emu_grid;
extern "C" int64_t scratch_bytes(int64_t t) { return count_scratch_bytes(t); }
extern "C" void emu_moe(const float* logits, const void* bias, const void* x, const float* xs, const void* w1, const float* s1, const void* w2, const float* s2, int offset, float scaling, void* output, void* scratch, int T, int shape, int ctas, unsigned seed, int force_two) {
  Args args = {}; args.num_tokens = T; args.capacity = T * 8; place_scratch((uint8_t*)scratch, T, args);
  args.x = (const uint8_t*)x; args.x_scale = xs; args.w1_scale = s1; args.w2_scale = s2;
  RouteArgs ra = {logits, (const __nv_bfloat16*)bias, args.routing, scaling, offset, T};
  CombineArgs ca = {args.routing, args.expert_out, (__nv_bfloat16*)output};
  if (T <= 128 && !force_two) { emu_cluster = ROUTING_CTAS; run_grid(dim3(ROUTING_CTAS), ROUTERS, 2048, [&] { route_and_pack_kernel(ra); }, seed); emu_cluster = 1; }
  else {
    int blocks = (T + 31) / 32;
    for (int b = 0; b < blocks; ++b) run_grid(dim3(1), ROUTERS, 16, [&] { cur->bid.x = b; route_kernel(ra); }, seed);
    for (int b = 0; b < (blocks + PACKED_BLOCKS - 1) / PACKED_BLOCKS; ++b) run_grid(dim3(1), ROUTERS, 16, [&] { cur->bid.x = b; pack_kernel(ra); }, seed);
  }
  if (shape == 116) go<Shape<1, 16, 9, 6>>(args, w1, w2, ctas, seed);
  if (shape == 464) go<Shape<4, 64, 4, 5>>(args, w1, w2, ctas, seed);
  if (shape < 0) return;
  for (int t = 0; t < T; ++t) for (int y = 0; y < COMBINE_PARTS; ++y) run_grid(dim3(1), COMBINERS, 16, [&] { cur->bid = dim3(t, y); combine_kernel(ca); }, seed);
}
extern "C" void emu_routing(void* scratch, int T, int64_t* out) {
  Args a = {}; place_scratch((uint8_t*)scratch, T, a); out[0] = (int64_t)((char*)a.routing.slot_weight - (char*)scratch); out[1] = (char*)a.routing.slot_row - (char*)scratch; out[2] = (char*)a.routing.row_token - (char*)scratch; out[3] = (char*)a.routing.counts - (char*)scratch; out[4] = (char*)a.c - (char*)scratch; out[5] = (char*)a.c_scale - (char*)scratch; out[6] = (char*)a.expert_out - (char*)scratch;
}
extern "C" long print_once() { long n = emu_once; emu_once = 0; return n; }
