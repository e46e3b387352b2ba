// Products of two numbers that are finite, if the numbers are: any architecture.
#pragma once

// a * b, rounded towards zero: beyond fp32's largest number that is the result, not infinity. Zeros
// that are multiplied by it stay zeros; anything else then comes out too small.
__device__ __forceinline__ float multiply_finite(float a, float b) { return __fmul_rz(a, b); }
