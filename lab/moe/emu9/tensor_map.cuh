#pragma once
#include "async_copy.cuh"
struct FakeMap { const char* base; int dims; uint64_t sizes[5], strides[5]; uint32_t box[5]; };
static_assert(sizeof(FakeMap) <= sizeof(CUtensorMap), "");
template <int D> inline bool make_byte_map(CUtensorMap& m, const void* base, const uint64_t (&sizes)[D], const uint64_t (&strides)[D - 1], const uint32_t (&box)[D]) {
  FakeMap f = {}; f.base = (const char*)base; f.dims = D;
  for (int i = 0; i < D; ++i) { f.sizes[i] = sizes[i]; f.strides[i] = i ? strides[i - 1] : 1; f.box[i] = box[i]; }
  if (box[0] != 128) { printf("box\n"); abort(); }
  memcpy(&m, &f, sizeof f); return true;
}
inline void prefetch_map(const CUtensorMap*) {}
inline void do_box(void* s, const CUtensorMap* m, uint64_t* b, std::vector<int> c, char* in = nullptr) {
  FakeMap f; memcpy(&f, m, sizeof f); if ((int)c.size() != f.dims) { printf("dims\n"); abort(); } c.resize(5, 0);
  for (int i = f.dims; i < 5; ++i) f.box[i] = 1, f.sizes[i] = 1, f.strides[i] = 0;
  uint32_t at = shared_address(s); if (at % 1024) { printf("tile not at 1024: %u\n", at); abort(); }
  char* base = in ? in : cta_base(); uint32_t o = 0;
  for (uint32_t e = 0; e < f.box[4]; ++e) for (uint32_t d = 0; d < f.box[3]; ++d) for (uint32_t r = 0; r < f.box[2]; ++r) for (uint32_t q = 0; q < f.box[1]; ++q) for (uint32_t x = 0; x < 128; x += 16) {
    uint64_t i0 = c[0] + x, i1 = c[1] + q, i2 = c[2] + r, i3 = c[3] + d, i4 = c[4] + e;
    if (i0 >= f.sizes[0] || i1 >= f.sizes[1] || i2 >= f.sizes[2] || i3 >= f.sizes[3] || i4 >= f.sizes[4]) { printf("box out of bounds\n"); abort(); }
    uint32_t a = at + o; a ^= (a >> 7 & 7) << 4;
    memcpy(base + a, f.base + i0 + i1 * f.strides[1] + i2 * f.strides[2] + i3 * f.strides[3] + i4 * f.strides[4], 16);
    o += 16;
  }
  bar_tx((uint64_t*)(base + shared_address(b)), o);
}
inline void copy_box(void* s, const CUtensorMap* m, uint64_t* b, int c0, int c1) { do_box(s, m, b, {c0, c1}); }
inline void copy_box(void* s, const CUtensorMap* m, uint64_t* b, int c0, int c1, int c2, int c3, int c4) { do_box(s, m, b, {c0, c1, c2, c3, c4}); }
