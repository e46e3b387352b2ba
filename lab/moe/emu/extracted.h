#define TVM_FFI_ICHECK(x) if(!(x)) std::cerr
#include <iostream>
namespace {
template <typename S>
__device__ __forceinline__ void init_barriers(SharedMemory<S>& shared) {
#pragma unroll 1
  for (int i = 0; i < S::WEIGHT_STAGES; ++i) {
    init_barrier(&shared.weights_full[i], 1);
    init_barrier(&shared.weights_free[i], MULTIPLYING / 32);
  }
#pragma unroll 1
  for (int i = 0; i < S::ROW_STAGES; ++i) {
    init_barrier(&shared.rows_full[i], ROW_FEEDERS);
    init_barrier(&shared.rows_free[i], MULTIPLYING / 32);
  }
#pragma unroll 1
  for (int i = 0; i < UNIT_STAGES; ++i) {
    init_barrier(&shared.unit_full[i], 1);
    init_barrier(&shared.unit_free[i], READERS);
  }
  fence_barrier_init();
}

void check_map(bool is_made) {
  TVM_FFI_ICHECK(is_made) << "moe: the driver describes no tensor maps of the weights";
}

// W1 as the first product's units take it: eight rows of the linear half, eight of the gate half,
// and so on. W2 as it lies.
template <typename S>
void describe_weights(Args& args, const void* w1, const void* w2) {
  check_map(make_byte_map<5>(
      args.w1, w1, {HIDDEN, 8, 2, WIDTH / 8, LOCAL},
      {HIDDEN, uint64_t{WIDTH} * HIDDEN, 8 * HIDDEN, uint64_t{2} * WIDTH * HIDDEN},
      {BLOCK, 8, 2, 4 * S::TILES, 1}));
  check_map(
      make_byte_map<2>(args.w2, w2, {WIDTH, LOCAL * HIDDEN}, {WIDTH}, {BLOCK, 64 * S::TILES}));
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
  scratch.take(args.c, 2 * capacity * WIDTH);
  scratch.take(args.c_scale, capacity * PIECES);
  scratch.take(args.expert_out, capacity * HIDDEN);
  return scratch.used;
}

int64_t count_scratch_bytes(int64_t num_tokens) {
  Args args = {};
  return place_scratch(nullptr, num_tokens, args);
}

// A call: everything is bound before the first launch, so that launches follow one another.
struct Call {
  Args args;
  RouteArgs route;
  const void *w1, *w2;
  __nv_bfloat16* output;
  int num_sms;
  cudaStream_t stream;
};

}
