import os
exec(open('clones/attn4-model/edit1.py').read().split("sub('plan.cuh',")[0])
sub('products.cuh',
('''__device__ __forceinline__ void keep_larger(uint32_t (&magnitudes)[4], const uint32_t (&key)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) magnitudes[i] = larger_magnitudes(magnitudes[i], key[i]);
}

// The exponent, as fp32 has it, of the largest of the warp's magnitudes, two a lane.
''','''// The exponent, as fp32 has it, of the largest of the warp's magnitudes, two a lane.
'''),
('''        if (step < VALUE_STEPS) keep_larger(magnitudes, key);
''','''        if (step >= VALUE_STEPS) continue;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          magnitudes[j % 2] = larger_magnitudes(magnitudes[j % 2], key[j]);
        }
'''),
('''    exponent = largest_exponent(larger_magnitudes(larger_magnitudes(magnitudes[0], magnitudes[1]),
                                                  larger_magnitudes(magnitudes[2], magnitudes[3])));
''','''    exponent = largest_exponent(larger_magnitudes(magnitudes[0], magnitudes[1]));
'''),
('''  uint32_t magnitudes[4] = {};
''','''  uint32_t magnitudes[2] = {};
'''),
('''// on: maximum of all rows, sum of the rows that I weighed; exponent of the largest value, and what
// it has all weights multiplied by, as a power of two.
struct Softmax {
  float top[2], sum[2];
  float exponent, shift;
};
''','''// on: maximum of all rows, sum of the rows that I weighed, and the power of two that all weights
// are multiplied by.
struct Softmax {
  float top[2], sum[2], shift;
};
'''),
('''    softmax.exponent = fmaxf(softmax.exponent, largest(shared.exponents));
    softmax.shift = fminf(LARGEST_SHIFT, Shared::SHIFT - softmax.exponent);
''','''    softmax.shift = fminf(softmax.shift, Shared::SHIFT - largest(shared.exponents));
'''),
)
sub('attend.cu',
('''  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, 0.0f, 0.0f};
''','''  Softmax softmax = {{-INFINITY, -INFINITY}, {0.0f, 0.0f}, Shared::FIRST_SHIFT};
'''))
sub('plan.cuh',
('''// shift = 15 + 126 - e - log2(rows). No more than LARGEST_SHIFT: sums of weights stay in fp32.
constexpr float LARGEST_SHIFT = 100;
''','''// shift = 15 + 126 - e - log2(rows). No more than 100: sums of weights have to fit fp32.
'''),
('''  static constexpr float SHIFT = 15 + 126 - log2_of(SLOTS / CLUSTER);
''','''  static constexpr float SHIFT = 15 + 126 - log2_of(SLOTS / CLUSTER);
  static constexpr float FIRST_SHIFT = SCALED ? 100 : 0;
'''))
