#include "emu.h"
#define gridDim emu_grid
#include "programmatic_launch.cuh"
#include "register_shares.cuh"
#include "plan.cuh"
#include "route.cuh"
#include "stream_route.cuh"
#include "tile_feed.cuh"
#include "tile_multiply.cuh"
#include "tile_route.cuh"
#include "combine.cuh"
void run_grid(dim3 grid, int threads, size_t shared, std::function<void()> f, unsigned seed);
dim3 emu_grid; long emu_bad = 0; extern std::vector<long> emu_delay; extern bool emu_skip; extern long emu_sweeps;
#include "extracted.h"
static StreamArgs make(const float* logits, const void* bias, const void* x, const float* xs, const void* w1, const float* s1, const void* w2, const float* s2, int offset, float scaling, void* output, void* scratch, int T, uint64_t nonce) {
  Args args = {}; args.num_tokens = T; args.capacity = T * 8; place_scratch((uint8_t*)scratch, T, args);
  args.x = (const uint8_t*)x; args.x_scale = xs; args.w1_scale = s1; args.w2_scale = s2; args.output = (__nv_bfloat16*)output; args.told.nonce = nonce;
  describe_tiles(args, w1, w2);
  return {args, {logits, (const __nv_bfloat16*)bias, args.routing, scaling, offset, T, xs, args.x_tile_scale}};
}
extern "C" int64_t scratch_bytes(int64_t t) { return count_scratch_bytes(t); }
extern "C" int64_t told_at(void* scratch, int64_t t, int64_t* slots) { Args a = {}; place_scratch((uint8_t*)scratch, t, a); *slots = (char*)a.told.slots - (char*)scratch; return (char*)a.told.locals - (char*)scratch; }
extern "C" int64_t told_words(int64_t t) { return count_told_words(t); }
extern "C" void emu_moe(const float* logits, const void* bias, const void* x, const float* xs, const void* w1, const float* s1, const void* w2, const float* s2, int offset, float scaling, void* output, void* scratch, int T, int ctas, unsigned seed, uint64_t nonce, const long* delay, int combines) {
  StreamArgs sa = make(logits, bias, x, xs, w1, s1, w2, s2, offset, scaling, output, scratch, T, nonce);
  emu_delay.assign(delay, delay + ctas); emu_grid = dim3(ctas); emu_cluster = 2;
  run_grid(dim3(ctas), THREADS, sizeof(RoutingTiles), [&] { routing_tile_kernel(sa); }, seed);
  emu_cluster = 1; emu_delay.clear(); if (!combines) return;
  emu_grid = dim3(T, COMBINE_PARTS);
  CombineArgs ca = {sa.all.routing, sa.all.expert_out, sa.all.output, sa.all.told, (int)count_told_words(T)};
  for (int t = 0; t < T; ++t) for (int y = 0; y < COMBINE_PARTS; ++y) run_grid(dim3(1), COMBINERS, 16, [&] { cur->bid = dim3(t, y); combine_kernel<true, true>(ca); }, seed);
}
// Routing alone: lists of every row tile by both feeder warps, the counts of the weights' warp, and slots.
extern "C" long emu_route(const float* logits, const void* bias, int offset, float scaling, void* output, void* scratch, int T, int ctas, unsigned seed, uint64_t nonce, const long* delay, int* counts, int* lists) {
  static float dummy_w[64]; StreamArgs sa = make(logits, bias, nullptr, nullptr, dummy_w, nullptr, dummy_w, nullptr, offset, scaling, output, scratch, T, nonce);
  emu_delay.assign(delay, delay + ctas); emu_grid = dim3(ctas); emu_cluster = 2;
  run_grid(dim3(ctas), THREADS, sizeof(RoutingTiles), [&] {
    RoutingTiles& shared = *(RoutingTiles*)cta_base(); const Args& all = sa.all; int rank = cluster_rank(), warp = threadIdx.x / 32, lane = threadIdx.x % 32, cta = cur->cta;
    if (warp == 8) begin_tiles(shared, all, rank); else { arrive_cluster(); route_for_tiles(shared, sa); wait_cluster(); }
    __syncthreads();
    int rows = count_rows(shared), through = scan_lanes(rows), tiles = (rows + 127) / 128, tt = scan_lanes(tiles), all_tiles = __shfl_sync(FULL, tt, 31);
    if (warp == 8) { counts[cta * 32 + lane] = rows; if (lane == 0) { arrive_expecting(&shared.tiles.ticket_full[0], 4); wait_phase(&shared.tiles.ticket_full[0], 0); } __syncwarp(); }
    else if (warp == 9 || warp == 10) {
      RoutedRows rr = find_routed_rows(shared, all);
      for (int tile = 0; tile < all_tiles; ++tile) {
        TileRows place = find_rows(tile, rows, through, tt); TileUnit u = {}; u.expert = place.expert; u.first_row = place.first_row; u.rows = place.rows;
        const uint16_t* l = rr.list(all, u);
        for (int i = lane; i < u.rows; i += 32) lists[(size_t)(cta * 2 + warp - 9) * T * 8 + u.first_row + i] = l[i];
      }
    } else if (warp == 11) tell_slots(shared, all);
    __syncwarp(); meet_cluster();
  }, seed);
  emu_cluster = 1; emu_delay.clear(); return emu_sweeps;
}
