import os
exec(open('clones/attn4-model/edit1.py').read().split("sub('plan.cuh',")[0])
sub('products.cuh',
('''      if (!Shared::SCALED || step >= VALUE_STEPS) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) magnitudes[j] = larger_magnitudes(magnitudes[j], key[j]);
    }
  }
  if (Shared::SCALED) {
''','''      if constexpr (Shared::SCALED) {
        if (step < VALUE_STEPS) keep_larger(magnitudes, key);
      }
    }
  }
  if constexpr (Shared::SCALED) {
'''),
('''// The exponent, as fp32 has it, of the largest of the warp's magnitudes, two a lane.
''','''__device__ __forceinline__ void keep_larger(uint32_t (&magnitudes)[4], const uint32_t (&key)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) magnitudes[i] = larger_magnitudes(magnitudes[i], key[i]);
}

// The exponent, as fp32 has it, of the largest of the warp's magnitudes, two a lane.
'''),
)
sub('merge.cuh',
('''// All senders' sums are loaded at once, with what others than senders left uninitialised, and not
// counted: a branch a sender would have each load wait for the sum of the one before.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void merge(const Shared& shared, const Args& args, int64_t token,
                                      int rank, const Work& work) {
  using Part = Piece<CLUSTER>;
  const int head = threadIdx.x / 16;
  float4 factors[(CLUSTER + 3) / 4];
#pragma unroll
  for (int i = 0; i < (CLUSTER + 3) / 4; ++i) {
    factors[i] = *reinterpret_cast<const float4*>(&shared.factors[head][4 * i]);
  }
''','''// What each sender's sums count for the head that a thread merges.
template <int CLUSTER>
struct Factors {
  float4 fours[(CLUSTER + 3) / 4];
};

template <int CLUSTER, typename Shared>
__device__ __forceinline__ Factors<CLUSTER> load_factors(const Shared& shared) {
  Factors<CLUSTER> factors;
#pragma unroll
  for (int i = 0; i < (CLUSTER + 3) / 4; ++i) {
    factors.fours[i] =
        *reinterpret_cast<const float4*>(&shared.factors[threadIdx.x / 16][4 * i]);
  }
  return factors;
}

// All senders' sums are loaded at once, with what others than senders left uninitialised, and not
// counted: a branch a sender would have each load wait for the sum of the one before.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void merge(const Shared& shared, const Args& args, int64_t token,
                                      int rank, const Work& work,
                                      const Factors<CLUSTER>& factors) {
  using Part = Piece<CLUSTER>;
  const int head = threadIdx.x / 16;
'''),
('''      const float factor = reinterpret_cast<const float*>(factors)[s];
''','''      const float factor = reinterpret_cast<const float*>(factors.fours)[s];
'''),
)
sub('attend.cu',
('''    wait_cta_phase(&shared.factors_found, 0);
    wait_phase(&shared.sums_landed, 0);
    arrive_cluster();  // what I sent was read once all have received
    merge<CLUSTER>(shared, args, token, rank, work);
''','''    wait_cta_phase(&shared.factors_found, 0);
    const Factors<CLUSTER> factors = load_factors<CLUSTER>(shared);
    wait_phase(&shared.sums_landed, 0);
    arrive_cluster();  // what I sent was read once all have received
    merge<CLUSTER>(shared, args, token, rank, work, factors);
'''),
('''// same heads in a lane. Partial sums travel in bf16 from shared memory to shared memory, warp by
// warp, and count there on a barrier: no scratch, no second launch.
''','''// same heads in a lane. Partial sums travel in fp16 from shared memory to shared memory, warp by
// warp, and count there on a barrier: no scratch, no second launch.
'''),
('''// the sum of p as rounded, which the tensor cores give it. Partial sums of several CTAs are rounded
// to bf16 once more; exp2 with the scale folded in. Only -1 is padding, but any index outside the
// cache counts as padding and is never read.
''','''// the sum of p as rounded, which the tensor cores give it. Partial sums of several CTAs are rounded
// to fp16 once more: a power of two on all weights of a CTA, from its largest value, keeps them in
// range; exp2 with the scale folded in. Only -1 is padding, but any index outside the cache counts
// as padding and is never read.
'''),
)
