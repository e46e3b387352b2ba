#pragma once
#include "fp8_products.cuh"
#include <deque>
inline uint32_t describe_start(const void* tile) { return __shfl_sync(0xffffffff, static_cast<uint32_t>(describe_tile(tile)), 0); }
// products run when they are awaited: operands are read then, sums are NaN until then
struct RowProduct { float* c; const uint32_t* a; uint32_t b; bool adds; int group; };
struct RowQueue { std::deque<RowProduct> left; int committed = 0; };
extern std::vector<RowQueue> row_queues; extern long row_products;
inline RowQueue& my_queue() { size_t i = cur->cta * emu_block_dim.x + cur->tid.x; if (i >= row_queues.size()) row_queues.resize(i + 1); return row_queues[i]; }
inline void multiply_rows(float (&c)[32], const uint32_t (&a)[4], uint32_t b, bool adds) {
  RowQueue& q = my_queue(); q.left.push_back({c, a, b, adds, q.committed}); if (!adds) for (float& x : c) x = NAN;
}
void run_row_product(const RowProduct& p);
inline void await_rows(int pending) { RowQueue* q = &my_queue(); while (!q->left.empty() && q->left.front().group < q->committed - pending) { RowProduct p = q->left.front(); q->left.pop_front(); run_row_product(p); q = &my_queue(); } }
template <int P> void await_products(float (&c)[32]) { await_rows(P); }
