s=open('core.cc').read()
s=s.replace('#include "cluster.cuh"\n','#include "cluster.cuh"\n#include "fp8_row_products.cuh"\n',1)
s=s.replace('Fiber* cur;','std::vector<std::vector<std::vector<Copy>>> emu_copies; std::vector<Late> emu_late; std::vector<RowQueue> row_queues; long row_products=0; long emu_prefetched=0; std::vector<long> emu_delay; bool emu_skip=false; long emu_sweeps=0;\nFiber* cur;',1)
s=s.replace('srand(seed);','srand(seed); emu_copies.assign((size_t)n*threads, {}); emu_late.clear(); row_queues.assign((size_t)n*threads, RowQueue());',1)
s=s.replace('for (int w : order) for','''emu_sweeps++; { size_t k = 0; for (size_t i = 0; i < emu_late.size(); ++i) { if (rand() % 3) { for (auto& c : emu_late[i].copies) memcpy(c.to, c.from, c.bytes); bar_arrive(emu_late[i].barrier); } else { emu_late[k] = emu_late[i]; ++k; } } emu_late.resize(k); }
    for (int w : order) if ((size_t)fibers[w*32].cta < emu_delay.size() && emu_delay[fibers[w*32].cta] > (long)emu_sweeps) continue; else for''',1)
s=s.replace('size_t left = fibers.size()','emu_sweeps=0; size_t left = fibers.size()',1)
i=s.index('void tile_product')
s=s[:i]+'''
void tile_product(uint64_t, uint64_t, int, float*) { abort(); }
void emu_commit() { ++my_queue().committed; }
void emu_wait(int p) { await_rows(p); }
static std::vector<std::vector<float>> warp_out;
void run_row_product(const RowProduct& p) {
  if (emu_skip) { return; }
  size_t w = cur->cta * 12 + cur->tid.x / 32; if (warp_out.size() <= w) warp_out.resize(w + 200, std::vector<float>(16 * 64));
  Group& g = warp_group(); int l = emu_lane();
  meet(g, 32, l, (uint64_t)p.a[0] | (uint64_t)p.a[1] << 32);
  uint64_t lo[32]; if (l == 0) memcpy(lo, g.out, sizeof lo);
  meet(g, 32, l, (uint64_t)p.a[2] | (uint64_t)p.a[3] << 32);
  if (l == 0) {
    static float A[16 * 32], B[64 * 32]; bool any = false;
    for (int t = 0; t < 32; ++t) for (int b = 0; b < 4; ++b) {
      A[(t / 4) * 32 + t % 4 * 4 + b] = e4m3_value(lo[t] >> 8 * b); A[(t / 4 + 8) * 32 + t % 4 * 4 + b] = e4m3_value(lo[t] >> (32 + 8 * b));
      A[(t / 4) * 32 + 16 + t % 4 * 4 + b] = e4m3_value(g.out[t] >> 8 * b); A[(t / 4 + 8) * 32 + 16 + t % 4 * 4 + b] = e4m3_value(g.out[t] >> (32 + 8 * b));
    }
    uint32_t start = (p.b & 0x3fff) << 4;
    for (int n = 0; n < 64; ++n) for (int k = 0; k < 32; k += 8) { uint32_t a = start + n / 8 * 1024 + n % 8 * 128 + k; a ^= (a >> 7 & 7) << 4; uint64_t v; memcpy(&v, cta_base() + a, 8); any |= v != 0; for (int b = 0; b < 8; ++b) B[n * 32 + k + b] = e4m3_value(v >> 8 * b); }
    float* o = warp_out[w].data();
    if (!any) memset(o, 0, 16 * 64 * 4);  // rows of nothing may hold NaN
    else for (int m = 0; m < 16; ++m) for (int n = 0; n < 64; ++n) { float s = 0; for (int k = 0; k < 32; ++k) s += A[m * 32 + k] * B[n * 32 + k]; o[m * 64 + n] = s; }
    ++row_products;
  }
  meet(g, 32, l, 0);
  const float* o = warp_out[w].data();
  for (int i = 0; i < 32; ++i) { int row = l / 4 + (i % 4 < 2 ? 0 : 8), col = i / 4 * 8 + l % 4 * 2 + i % 2; p.c[i] = (p.adds ? p.c[i] : 0.0f) + o[row * 64 + col]; }
  meet(g, 32, l, 0);
}
'''
open('core2.cc','w').write(s)
