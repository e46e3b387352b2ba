#define TVM_FFI_ICHECK(x) if(!(x)) std::cerr
#include <iostream>
namespace {
// The same, which routes: tile_route.cuh.
__global__ void __launch_bounds__(THREADS, 1)
    routing_tile_kernel(const __grid_constant__ StreamArgs args) {
  uint8_t* memory = (uint8_t*)cta_base();
  RoutingTiles& shared = *reinterpret_cast<RoutingTiles*>(memory);
  const Args& all = args.all;
  const int rank = cluster_rank(), warp = threadIdx.x / 32;
  if (warp == MULTIPLYING / 32) {
    begin_tiles(shared, all, rank);
  } else {
    arrive_cluster();
    route_for_tiles(shared, args);
    wait_cluster();
  }
  __syncthreads();
  allow_next_launch();
  if (warp < MULTIPLYING / 32) {
    take_registers<224>();
    multiply_tiles<true>(shared.tiles, all);
  } else {
    give_registers<56>();
    if (warp == MULTIPLYING / 32) {
      feed_tile_weights<true>(shared.tiles, all, rank, count_rows(shared));
    } else if (warp <= MULTIPLYING / 32 + TILE_FEEDERS / 32) {
      feed_tiles(shared.tiles, all, find_routed_rows(shared, all));
    } else {
      tell_slots(shared, all);
    }
  }
  __syncwarp();
  meet_cluster();  // nobody ends while the other may still arrive here
}

void check_map(bool is_made) {
  TVM_FFI_ICHECK(is_made) << "moe: the driver describes no tensor maps of the weights";
}

// Weights as tiles have them, 64 rows a box. Of 32 rows the order is that of tile_multiply.cuh.
void describe_tiles(Args& args, const void* w1, const void* w2) {
  check_map(make_byte_map<5>(args.w1, w1, {HIDDEN, 2, 4, 4, LOCAL * 2 * WIDTH / 32},
                             {HIDDEN, 8 * HIDDEN, 2 * HIDDEN, 32 * HIDDEN},
                             {BLOCK, 2, 4, 4, BOX_ROWS / 32}));
  check_map(make_byte_map<5>(args.w2, w2, {WIDTH, 2, 4, 4, LOCAL * HIDDEN / 32},
                             {WIDTH, 8 * WIDTH, 2 * WIDTH, 32 * WIDTH},
                             {BLOCK, 2, 4, 4, BOX_ROWS / 32}));
}

// Parts of the scratch of a call, each at a multiple of 256 bytes.
struct Scratch {
  uint8_t* base;
  int64_t used = 0;
  template <typename T>
  void take(T*& part, int64_t count) {
    part = reinterpret_cast<T*>(base + used);
    used += (count * int64_t{sizeof(T)} + 255) / 256 * 256;
  }
};

// Words of Told from `locals` to `done`, of which no more are used than there can be row tiles.
int64_t count_told_words(int64_t num_tokens) {
  return 2 * num_tokens + 1 + std::min(num_tokens * TOP_K, int64_t{MOST_TILES});
}

// Places scratch for so many tokens from `base` on; returns its bytes.
int64_t place_scratch(uint8_t* base, int64_t num_tokens, Args& args) {
  Scratch scratch = {base};
  const int64_t capacity = num_tokens * TOP_K;
  Routing& routing = args.routing;
  scratch.take(routing.slot_weight, capacity);
  scratch.take(routing.slot_row, capacity);
  scratch.take(routing.row_token, capacity);
  scratch.take(routing.counts, LOCAL);
  scratch.take(routing.ticket, 1);
  scratch.take(routing.done, MOST_TILES);
  scratch.take(routing.slot_local, num_tokens);
  scratch.take(routing.block_counts, (num_tokens + ROUTED_ROWS - 1) / ROUTED_ROWS * LOCAL);
  uint64_t* told;
  scratch.take(told, count_told_words(num_tokens));
  args.told.locals = reinterpret_cast<uint4*>(told);
  args.told.ticket = told + 2 * num_tokens, args.told.done = args.told.ticket + 1;
  scratch.take(args.told.slots, capacity);
  scratch.take(args.c, 2 * capacity * WIDTH);
  scratch.take(args.c_scale, capacity * PIECES);
  const int64_t tiled_rows = (LOCAL + capacity / TILE_ROWS) * TILE_ROWS;
  scratch.take(args.x_tile_scale, tiled_rows * HIDDEN_BLOCKS);
  scratch.take(args.c_tile_scale, tiled_rows * WIDTH_BLOCKS);
  scratch.take(args.expert_out, capacity * HIDDEN);
  return scratch.used;
}

int64_t count_scratch_bytes(int64_t num_tokens) {
  Args args = {};
  return place_scratch(nullptr, num_tokens, args);
}

}
