import os
os.chdir('clones/attn4/solutions/dsa_attention')
def sub(f, *pairs):
    s=open(f).read()
    for a,b in pairs:
        assert s.count(a)==1,(f,s.count(a),a)
        s=s.replace(a,b)
    open(f,'w').write(s)
sub('plan.cuh',
('#include <cuda_bf16.h>\n','#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n'),
('''// one owner, in bf16, the groups of eight columns permuted by head so that fragments are stored
// without bank conflicts.
''','''// one owner, in fp16, the groups of eight columns permuted by head so that fragments are stored
// without bank conflicts.
'''),
('  __nv_bfloat16 sums[HEADS * WIDTH];','  __half sums[HEADS * WIDTH];'),
('''  alignas(16) float tops[HEADS][WARPS];             // of a tile
  alignas(16) float sums[HEADS][WARPS];             // of a run
  float top[HEADS];                                 // of a run
''','''  alignas(16) float tops[HEADS][WARPS];             // of a tile
  alignas(16) float exponents[WARPS];               // of a tile's values
  alignas(16) float4 sums[HEADS][WARPS];            // of a run, by the lanes of a quad
  float anchor[HEADS];                              // of a run
'''),
)
sub('products.cuh',
('#include "fast_math.cuh"\n','#include "fast_math.cuh"\n#include "magnitudes.cuh"\n'),
('''// Logits [head][row], without the scale: heads lane / 4 and eight on, rows my_row() and one on.
struct Logits {
  float low[2], high[2];
};
''','''// Logits [head][row], without the scale: heads lane / 4 and eight on, rows my_row() and one on.
struct Logits {
  float low[2], high[2];
};

// The exponent, as fp32 has it, of the largest of the warp's magnitudes, two a lane.
__device__ __forceinline__ float largest_exponent(uint32_t magnitudes) {
  const uint32_t first = magnitudes << 16 & 0x7fff0000, second = magnitudes & 0x7fff0000;
  const uint32_t exponent = __reduce_max_sync(~0u, first > second ? first : second) >> 23;
  constexpr uint32_t TWO_TO_23 = 0x4b000000;  // in fp32, whose last bit counts 1
  return __uint_as_float(TWO_TO_23 | exponent) - __uint_as_float(TWO_TO_23);
}
'''),
('''// q K^T of my block's rows, which begin at `from`: three chains of products for each eight rows,
// keys loaded a batch ahead.
template <typename Shared>
__device__ __forceinline__ Logits score(Shared& shared, uint32_t thread, uint32_t from,
                                        const Query& query) {
''','''// q K^T of my block's rows, which begin at `from`: three chains of products for each eight rows,
// keys loaded a batch ahead. exponent: largest_exponent() of those that are values as well.
template <typename Shared>
__device__ __forceinline__ Logits score(Shared& shared, uint32_t thread, uint32_t from,
                                        const Query& query, float& exponent) {
'''),
('''  float chains[CHAINS][2][4] = {};  // [step mod CHAINS][eight rows]
''','''  float chains[CHAINS][2][4] = {};  // [step mod CHAINS][eight rows]
  uint32_t magnitudes[4] = {};
'''),
('''      multiply_bf16(chains[step % CHAINS][1], query.steps[step], key[2], key[3]);
    }
  }
''','''      multiply_bf16(chains[step % CHAINS][1], query.steps[step], key[2], key[3]);
      if (!Shared::SCALED || step >= VALUE_STEPS) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) magnitudes[j] = larger_magnitudes(magnitudes[j], key[j]);
    }
  }
  if (Shared::SCALED) {
    exponent = largest_exponent(larger_magnitudes(larger_magnitudes(magnitudes[0], magnitudes[1]),
                                                  larger_magnitudes(magnitudes[2], magnitudes[3])));
  }
'''),
('''// The running softmax of the two heads that are mine in logits and sums alike, lane / 4 and eight
// on: maximum of all rows, sum of the rows that I weighed.
struct Softmax {
  float top[2], sum[2];
};
''','''// The running softmax of the two heads that are mine in logits and sums alike, lane / 4 and eight
// on: maximum of all rows, sum of the rows that I weighed; exponent of the largest value, and what
// it has all weights multiplied by, as a power of two.
struct Softmax {
  float top[2], sum[2];
  float exponent, shift;
};
'''),
('''// Weights of the tile from its logits; mine: bits_of_mine(). The barrier in the middle has all
// warps' maxima, the one at the end all weights.
template <typename Shared>
__device__ __forceinline__ Fade weigh(Shared& shared, uint32_t thread, float scale, uint32_t mine,
                                      const Logits& logits, Softmax& softmax) {
''','''// Weights of the tile from its logits; mine: bits_of_mine(); exponent: that of the values that I
// have seen. The barrier in the middle has all warps' maxima, the one at the end all weights, and
// what sums of the run are stored.
template <typename Shared>
__device__ __forceinline__ Fade weigh(Shared& shared, uint32_t thread, float scale, uint32_t mine,
                                      const Logits& logits, float exponent, Softmax& softmax) {
'''),
('''  if (lane % 4 == 0) shared.tops[head][warp] = tops[0], shared.tops[head + 8][warp] = tops[1];
  sync_first<COMPUTING>();
''','''  if (lane % 4 == 0) shared.tops[head][warp] = tops[0], shared.tops[head + 8][warp] = tops[1];
  if (Shared::SCALED && lane == 0) shared.exponents[warp] = exponent;
  sync_first<COMPUTING>();
'''),
('''  const float highest[2] = {largest(shared.tops[head]), largest(shared.tops[head + 8])};
  Fade fade;
''','''  const float highest[2] = {largest(shared.tops[head]), largest(shared.tops[head + 8])};
  const float before = softmax.shift;
  if (Shared::SCALED) {
    softmax.exponent = fmaxf(softmax.exponent, largest(shared.exponents));
    softmax.shift = fminf(LARGEST_SHIFT, Shared::SHIFT - softmax.exponent);
  }
  Fade fade;
'''),
('''    const float anchor = top == -INFINITY ? 0.0f : top;
    fade.of[i] = exp2_approx(softmax.top[i] - anchor);
''','''    const float anchor = (top == -INFINITY ? 0.0f : top) - softmax.shift;
    fade.of[i] = exp2_approx(softmax.top[i] - before - anchor);
'''),
('''    softmax.sum[i] = softmax.sum[i] * fade.of[i] + (weights.x + weights.y);
  }
  sync_first<COMPUTING>();
  return fade;
}

// Sums of the run, for whoever waits for sums_stored.
template <typename Shared>
__device__ __forceinline__ void store_sums(Shared& shared, uint32_t thread, Softmax softmax) {
  const int lane = thread % 32, warp = thread / 32, head = lane / 4;
#pragma unroll
  for (int mask = 1; mask < 4; mask *= 2) {
    softmax.sum[0] += __shfl_xor_sync(~0u, softmax.sum[0], mask);
    softmax.sum[1] += __shfl_xor_sync(~0u, softmax.sum[1], mask);
  }
  if (lane % 4 == 0) {
    shared.sums[head][warp] = softmax.sum[0], shared.sums[head + 8][warp] = softmax.sum[1];
    if (warp == 0) shared.top[head] = softmax.top[0], shared.top[head + 8] = softmax.top[1];
  }
  __syncwarp();
  if (lane == 0) arrive(&shared.sums_stored);
}

// Behind sums_stored.
template <typename Shared>
__device__ __forceinline__ float total_of(const Shared& shared, int head) {
  const float4 a = reinterpret_cast<const float4*>(shared.sums[head])[0];
  const float4 b = reinterpret_cast<const float4*>(shared.sums[head])[1];
  return ((a.x + a.y) + (a.z + a.w)) + ((b.x + b.y) + (b.z + b.w));
}
''','''    softmax.sum[i] = softmax.sum[i] * fade.of[i] + (weights.x + weights.y);
    // The places of warps are permuted by head: eight heads of a warp lie in eight groups of banks.
    reinterpret_cast<float*>(&shared.sums[head + 8 * i][warp ^ head])[lane % 4] = softmax.sum[i];
    if (warp == 0 && lane % 4 == 0) shared.anchor[head + 8 * i] = top - softmax.shift;
  }
  sync_first<COMPUTING>();
  return fade;
}

// By the helping warps, a quarter-warp a head, once the last sums are stored: what all lanes and
// warps have weighed.
template <typename Shared>
__device__ __forceinline__ float total_of(const Shared& shared, int head) {
  const float4 quad = shared.sums[head][threadIdx.x % 8];
  float total = (quad.x + quad.y) + (quad.z + quad.w);
#pragma unroll
  for (int mask = 4; mask > 0; mask /= 2) total += __shfl_xor_sync(~0u, total, mask);
  return total;
}
'''),
)
sub('plan.cuh',
('''template <int CLUSTER>
struct SharedMemory {
''','''// Sums travel in fp16, which has three bits more than bf16 and range enough for what lies below a
// known bound. Of the values that a CTA has weighed the largest exponent e, biased by 127, is known
// before their weights are. Weights of at most 2^shift add up to less than 2^15 where
// shift = 15 + 126 - e - log2(rows). No more than LARGEST_SHIFT: sums of weights stay in fp32.
constexpr float LARGEST_SHIFT = 100;

template <int CLUSTER>
struct SharedMemory {
  static constexpr bool SCALED = CLUSTER > 1;
  static constexpr float SHIFT = 15 + 126 - log2_of(SLOTS / CLUSTER);
'''),
('''constexpr int LARGEST = 16;  // CTAs of a cluster, more than 8 of which are not portable
''','''constexpr int LARGEST = 16;  // CTAs of a cluster, more than 8 of which are not portable
constexpr int log2_of(int x) { return x > 1 ? 1 + log2_of(x / 2) : 0; }
'''),
('''constexpr int HALVES = 2, PART_STEPS = ROW / HALVES / 32;
''','''constexpr int HALVES = 2, PART_STEPS = ROW / HALVES / 32;
constexpr int VALUE_STEPS = CKV_BYTES / HALVES / 32;  // of those, in front: ckv
'''),
)
sub('merge.cuh',
('#include <cuda_bf16.h>\n','#include <cuda_bf16.h>\n#include <cuda_fp16.h>\n'),
('#include "products.cuh"\n','#include "products.cuh"\n#include "tile_store.cuh"\n'),
('''// The result of one CTA. Fragments are 4 bytes, lines 128: each warp turns its own 64 columns
// through shared memory.
''','''// The head whose row a lane names in a store of four tiles, of both eights of heads and two groups
// of columns; which of the two: lane / 16.
__device__ __forceinline__ int head_to_store(int lane) { return lane % 16; }

__device__ __forceinline__ uint32_t as_word(__nv_bfloat162 pair) {
  return *reinterpret_cast<uint32_t*>(&pair);
}
__device__ __forceinline__ uint32_t as_word(__half2 pair) {
  return *reinterpret_cast<uint32_t*>(&pair);
}

// The result of one CTA. Fragments are 4 bytes, lines 128: each warp turns its own 64 columns
// through shared memory.
'''),
('''#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int head = lane / 4 + 8 * i;
    const float factor = __fdividef(1.0f, acc[8][2 * i]);
#pragma unroll
    for (int group = 0; group < 8; ++group) {
      *reinterpret_cast<__nv_bfloat162*>(&mine[head * OUTPUT_ROW + 16 * group + lane % 4 * 4]) =
          __floats2bfloat162_rn(acc[group][2 * i] * factor, acc[group][2 * i + 1] * factor);
    }
  }
  __syncwarp();
''','''  const float factors[2] = {__fdividef(1.0f, acc[8][0]), __fdividef(1.0f, acc[8][2])};
  const uint32_t from =
      shared_address(mine) + lane % 16 * OUTPUT_ROW + lane / 16 * CHUNK;  // head, group
#pragma unroll
  for (int group = 0; group < 8; group += 2) {
    uint32_t tiles[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float(&sums)[4] = acc[group + j / 2];
      const int i = j % 2;
      tiles[j] = as_word(
          __floats2bfloat162_rn(sums[2 * i] * factors[i], sums[2 * i + 1] * factors[i]));
    }
    store_tiles(from + CHUNK * group, tiles);
  }
  __syncwarp();
'''),
('''  wait_cta_phase(&shared.sums_stored, 0);
  const int head = threadIdx.x - COMPUTING;
  if (head >= HEADS) return;
  args.lse[token * HEADS + head] = shared.top[head] + __log2f(total_of(shared, head));
''','''  wait_cta_phase(&shared.sums_stored, 0);
  const int head = (threadIdx.x - COMPUTING) / 8;
  const float total = total_of(shared, head);
  if (threadIdx.x % 8 != 0) return;
  args.lse[token * HEADS + head] = shared.anchor[head] + __log2f(total);
'''),
('''  const float2 stats = {shared.top[head], total_of(shared, head)};
''','''  const float2 stats = {shared.anchor[head], total_of(shared, head)};
'''),
('''#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      const float(&sums)[4] = acc[FIRST_GROUP + group];
      auto* to = &mine.sums[Part::place(lane / 4 + 8 * i, 8 * group + lane % 4 * 2)];
      *reinterpret_cast<__nv_bfloat162*>(to) =
          __floats2bfloat162_rn(sums[2 * i], sums[2 * i + 1]);
    }
  }
  publish_shared();
''','''  const uint32_t from =
      shared_address(&mine.sums[Part::place(lane % 16, lane / 16 * 8)]);  // head, group
#pragma unroll
  for (int group = 0; group < GROUPS; group += 2) {
    uint32_t tiles[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float(&sums)[4] = acc[FIRST_GROUP + group + j / 2];
      tiles[j] = as_word(__floats2half2_rn(sums[j % 2 * 2], sums[j % 2 * 2 + 1]));
    }
    store_tiles(from ^ CHUNK * group, tiles);
  }
  publish_shared();
'''),
('''      const uint32_t pair = pairs[s] & (work.sends(s) ? ~0u : 0u);
      sum.x += factor * __uint_as_float(pair << 16);  // bf16 is the upper half of fp32
      sum.y += factor * __uint_as_float(pair & 0xffff0000);
''','''      const uint32_t pair = pairs[s] & (work.sends(s) ? ~0u : 0u);
      const float2 sums = __half22float2(*reinterpret_cast<const __half2*>(&pair));
      sum.x += factor * sums.x;
      sum.y += factor * sums.y;
'''),
)
# the helper names nothing more than lane % 16: dropped
s=open('merge.cuh').read()
a=s.index('// The head whose row a lane names'); b=s.index('__device__ __forceinline__ uint32_t as_word(__nv_bfloat162')
s=s[:a]+s[b:]; open('merge.cuh','w').write(s)
sub('attend.cu',
('''  init_barrier(&shared.sums_stored, WARPS);
''','''  init_barrier(&shared.sums_stored, 1);
'''),
('''// Sums of the last tile: where a warp's columns have two owners, the first half is under way while
// the second is multiplied. Those of the softmax are stored while products are on their way; what
// is made of them is still there before the last piece is.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void accumulate_and_send(Shared& shared, uint32_t thread,
                                                    uint32_t weights, uint32_t values, int rank,
                                                    uint64_t valid, const Softmax& softmax,
                                                    Sums& acc) {
  if constexpr (Piece<CLUSTER>::A_WARP == 2) {
    accumulate<0, 4>(weights, values, valid, acc);
    store_sums(shared, thread, softmax);
    send_piece<CLUSTER, 0>(shared, thread, rank, acc);
    accumulate<4, 4>(weights, values, valid, acc);
    send_piece<CLUSTER, 4>(shared, thread, rank, acc);
  } else {
    accumulate<0, 8>(weights, values, valid, acc);
    store_sums(shared, thread, softmax);
    send_piece<CLUSTER, 0>(shared, thread, rank, acc);
''','''// Sums of the last tile: where a warp's columns have two owners, the first half is under way while
// the second is multiplied.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void accumulate_and_send(Shared& shared, uint32_t thread,
                                                    uint32_t weights, uint32_t values, int rank,
                                                    uint64_t valid, Sums& acc) {
  if constexpr (Piece<CLUSTER>::A_WARP == 2) {
    accumulate<0, 4>(weights, values, valid, acc);
    send_piece<CLUSTER, 0>(shared, thread, rank, acc);
    accumulate<4, 4>(weights, values, valid, acc);
    send_piece<CLUSTER, 4>(shared, thread, rank, acc);
  } else {
    accumulate<0, 8>(weights, values, valid, acc);
    send_piece<CLUSTER, 0>(shared, thread, rank, acc);
'''),
('''  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}};
''','''  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, 0.0f, 0.0f};
'''),
('''    Logits logits = {};
    if (mine != 0) logits = score(shared, thread, places.keys + rows, query);
    const Fade fade = weigh(shared, thread, args.scale, mine, logits, softmax);
    if (turn > 0) fade_sums(acc, fade);
''','''    Logits logits = {};
    float exponent = 0.0f;
    if (mine != 0) logits = score(shared, thread, places.keys + rows, query, exponent);
    const Fade fade = weigh(shared, thread, args.scale, mine, logits, exponent, softmax);
    if (left == 0 && thread == 0) arrive(&shared.sums_stored);
    if (turn > 0) fade_sums(acc, fade);
'''),
('''                                          rank, valid, softmax, acc);
''','''                                          rank, valid, acc);
'''),
('''    if (left == 0) {
      store_sums(shared, thread, softmax);  // while products are on their way: for lse alone
      return write_alone(shared, args, token, thread, acc);
    }
''','''    if (left == 0) return write_alone(shared, args, token, thread, acc);
'''),
)
