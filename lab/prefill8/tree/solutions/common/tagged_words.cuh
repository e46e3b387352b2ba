// Words in global memory through which CTAs tell each other something, and which nobody clears
// before: PTX of sm_70 and later.
//
// Each call has a nonce, a random odd number of 64 bits. What a word says counts once the nonce, or
// as much of it as fits, stands beside it. Memory that holds anything else has B such bits right by
// chance with a probability of 2^-B; zeros never have.
#pragma once

#include <cstdint>

__device__ __forceinline__ uint64_t load_relaxed(const uint64_t* word) {
  uint64_t value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
  return value;
}

// Two halves of 32 bits each with 32 bits of the nonce: they may come from different moments.
__device__ __forceinline__ uint4 load_relaxed(const uint4* words) {
  uint64_t low, high;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high)
               : "l"(words)
               : "memory");
  return {static_cast<uint32_t>(low), static_cast<uint32_t>(low >> 32),
          static_cast<uint32_t>(high), static_cast<uint32_t>(high >> 32)};
}

__device__ __forceinline__ void store_half(uint2* half, uint32_t value, uint32_t tag) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(half),
               "l"(uint64_t{tag} << 32 | value)
               : "memory");
}

__device__ __forceinline__ void store_halves(uint4* words, uint2 value, uint64_t nonce) {
  const uint64_t low = nonce << 32 | value.x;
  const uint64_t high = nonce >> 32 << 32 | value.y;
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(words), "l"(low), "l"(high)
               : "memory");
}

__device__ __forceinline__ bool has_nonce(uint4 words, uint64_t nonce) {
  return words.y == static_cast<uint32_t>(nonce) && words.w == static_cast<uint32_t>(nonce >> 32);
}

// A counter has BITS bits of count below those of the nonce. This makes a counter of a word of
// which `seen` was read, unless somebody else has done so since.
template <int BITS>
__device__ __forceinline__ void begin_count(uint64_t* word, uint64_t seen, uint64_t nonce) {
  if (seen >> BITS == nonce << BITS >> BITS) return;
  atomicCAS(reinterpret_cast<unsigned long long*>(word), seen, nonce << BITS);
}

// The count so far, to which one is added. Of a word that begin_count() has seen.
template <int BITS>
__device__ __forceinline__ int take_count(uint64_t* word) {
  const uint64_t before = atomicAdd(reinterpret_cast<unsigned long long*>(word), 1ull);
  return static_cast<int>(before & ((uint64_t{1} << BITS) - 1));
}
