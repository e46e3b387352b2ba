#pragma once
#include "fp8_row_products.cuh"
inline void multiply_rows(float (&c)[64], const uint32_t (&a)[4], uint32_t b, bool adds) {
  RowQueue& q = my_queue(); q.left.push_back({c, a, b, adds, q.committed}); q.left.push_back({c + 32, a, b + 512, adds, q.committed}); if (!adds) for (float& x : c) x = NAN;
}
template <int P> void await_products(float (&c)[64]) { await_rows(P); }
