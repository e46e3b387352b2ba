#include "emu.h"
#include "barrier_wait.cuh"
#define gridDim emu_grid
#include "programmatic_launch.cuh"
#include "register_shares.cuh"
#include "counted_barrier.cuh"
#include "plan.cuh"
#include "route.cuh"
#include "stream_route.cuh"
#include "feed.cuh"
#include "multiply.cuh"
#include "tile_plan.cuh"
#include "combine.cuh"
void run_grid(dim3 grid, int threads, size_t shared, std::function<void()> f, unsigned seed);
dim3 emu_grid; long emu_bad = 0, emu_once = 0, emu_ahead = 0; extern std::vector<long> emu_delay; extern long emu_sweeps;
#include "extracted.h"
extern "C" int64_t scratch_bytes(int64_t t) { return count_scratch_bytes(t); }
extern "C" long shared_bytes() { return sizeof(SharedMemory); }
extern "C" long ahead() { long n = emu_ahead; emu_ahead = 0; return n; }
extern "C" void emu_stream(const float* logits, const void* bias, const void* x, const float* xs, const void* w1, const float* s1, const void* w2, const float* s2, int offset, float scaling, void* output, void* scratch, int T, int ctas, unsigned seed, uint64_t nonce, const long* delay) {
  Args args = {}; args.num_tokens = T; args.capacity = T * 8; place_scratch((uint8_t*)scratch, T, args);
  args.x = (const uint8_t*)x; args.x_scale = xs; args.w1_scale = s1; args.w2_scale = s2; args.output = (__nv_bfloat16*)output; args.told.nonce = nonce;
#ifdef NEWER
  args.w2_codes = (const uint8_t*)w2;
#endif
  describe_weights(args, w1, w2);
  StreamArgs sa = {args, {logits, (const __nv_bfloat16*)bias, args.routing, scaling, offset, T, xs, args.x_tile_scale}};
  emu_delay.assign(delay, delay + ctas); emu_grid = dim3(ctas);
  run_grid(dim3(ctas), THREADS, sizeof(SharedMemory), [&] { stream_kernel(sa); }, seed);
  emu_delay.clear();
  emu_grid = dim3(T, COMBINE_PARTS);
  CombineArgs ca = {args.routing, args.expert_out, args.output, T, args.told, (int)count_told_words(T)};
  for (int t = 0; t < T; ++t) for (int y = 0; y < COMBINE_PARTS; ++y) run_grid(dim3(1), COMBINERS, 16, [&] { cur->bid = dim3(t, y); combine_kernel<true, STREAM_SUMS>(ca); }, seed);
}
#ifdef SUMS
template <bool TOLD, int TOKENS> static void sums(CombineArgs ca, unsigned seed) { emu_grid = dim3((ca.num_tokens + TOKENS - 1) / TOKENS, COMBINE_PARTS); for (unsigned t = 0; t < emu_grid.x; ++t) for (int y = 0; y < COMBINE_PARTS; ++y) run_grid(dim3(1), COMBINERS, 16, [&, t, y] { cur->bid = dim3(t, y); combine_kernel<TOLD, TOKENS>(ca); }, seed); }
extern "C" void emu_sums(const int* rows, const float* weights, const void* expert_out, void* out, void* scratch, int T, int told, int tokens, unsigned seed, uint64_t nonce) {
  Args args = {}; args.num_tokens = T; args.capacity = T * 8; place_scratch((uint8_t*)scratch, T, args); args.told.nonce = nonce;
  for (int i = 0; i < T * 8; ++i) { if (told) args.told.slots[i] = {(uint32_t)rows[i], (uint32_t)nonce, __float_as_uint(weights[i]), (uint32_t)(nonce >> 32)}; args.routing.slot_row[i] = rows[i]; args.routing.slot_weight[i] = weights[i]; }
  CombineArgs ca = {args.routing, (const __nv_bfloat16*)expert_out, (__nv_bfloat16*)out, T, args.told, (int)count_told_words(T)};
  if (told) { if (tokens == 4) sums<true, 4>(ca, seed); else if (tokens == 16) sums<true, 16>(ca, seed); else sums<true, 1>(ca, seed); }
  else { if (tokens == 4) sums<false, 4>(ca, seed); else sums<false, 16>(ca, seed); }
}
#endif
