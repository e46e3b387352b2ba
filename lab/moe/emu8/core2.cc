#include "emu.h"
#include "fp8_products.cuh"
#include "cluster.cuh"
#include "fp8_row_products.cuh"
int emu_cluster = 1; std::vector<EmuCluster> emu_clusters; std::vector<int> emu_arrival;
std::vector<std::vector<std::vector<Copy>>> emu_copies; std::vector<Late> emu_late; std::vector<RowQueue> row_queues; long row_products=0; long emu_prefetched=0; std::vector<long> emu_delay; bool emu_skip=false; long emu_sweeps=0;
Fiber* cur; dim3 emu_block_dim; static void* sched_sp; static std::vector<Fiber> fibers; static std::function<void()> body;
static std::vector<char*> bases; static std::vector<std::vector<Group>> warps, wgs, named; static std::vector<Group> ctas; static std::vector<std::vector<float>> results;
extern "C" void emu_switch(void** save, void* load);
asm(R"(
.globl emu_switch
emu_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");
void yield() { ++cur->waits; emu_switch(&cur->sp, sched_sp); }
static void entry() { body(); cur->done = true; emu_switch(&cur->sp, sched_sp); abort(); }
Group& warp_group() { return warps[cur->cta][cur->tid.x / 32]; }
Group& wg_group() { return wgs[cur->cta][cur->tid.x / 128]; }
Group& cta_group() { return ctas[cur->cta]; }
Group& named_group(int id) { return named[cur->cta][id]; }
char* base_of(int c) { return bases[c]; }
char* cta_base() { return bases[cur->cta]; }
float* wg_result(int cta, int wg) { return results[cta * 4 + wg].data(); }
float e4m3_value(uint8_t c) { static float table[256]; static bool made = false; if (!made) { for (int i = 0; i < 256; ++i) { __half_raw h = __nv_cvt_fp8_to_halfraw(i, __NV_E4M3); table[i] = __half2float(__half(h)); } made = true; } return table[c]; }
void run_grid(dim3 grid, int threads, size_t shared, std::function<void()> f, unsigned seed) {
  body = f; emu_block_dim = dim3(threads);
  const int STACK = 64 << 10; int n = grid.x * grid.y;
  srand(seed); emu_copies.assign((size_t)n*threads, {}); emu_late.clear(); row_queues.assign((size_t)n*threads, RowQueue()); emu_clusters.assign(n / emu_cluster + 1, EmuCluster()); emu_arrival.assign((size_t)n * threads, -1);
  ctas.assign(n, Group()); warps.assign(n, std::vector<Group>(threads / 32 + 1)); wgs.assign(n, std::vector<Group>(threads / 128 + 1)); named.assign(n, std::vector<Group>(16));
  results.assign(n * 4, std::vector<float>(64 * 256));
  for (char* b : bases) free(b);
  bases.clear();
  for (int i = 0; i < n; ++i) { char* b = (char*)aligned_alloc(1024, (shared + 2047) / 1024 * 1024); memset(b, 0xff, shared); bases.push_back(b); }
  fibers.assign((size_t)n * threads, Fiber());
  for (int i = 0; i < n * threads; ++i) {
    Fiber& fb = fibers[i]; fb.stack = (char*)malloc(STACK); fb.cta = i / threads; fb.tid = dim3(i % threads); fb.bid = dim3(fb.cta % grid.x, fb.cta / grid.x); fb.done = false;
    void** sp = (void**)(fb.stack + STACK - 64); sp = (void**)((uintptr_t)sp & ~15ull); *--sp = nullptr; *--sp = (void*)entry; for (int k = 0; k < 6; ++k) *--sp = nullptr; fb.sp = sp;
  }
  emu_sweeps=0; size_t left = fibers.size(); uint64_t idle = 0;
  std::vector<int> order(n * threads / 32); for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  while (left) {
    for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[rand() % (i + 1)]);
    size_t before = left;
    emu_sweeps++; { size_t k = 0; for (size_t i = 0; i < emu_late.size(); ++i) { if (rand() % 3) { for (auto& c : emu_late[i].copies) memcpy(c.to, c.from, c.bytes); bar_arrive(emu_late[i].barrier); } else { emu_late[k] = emu_late[i]; ++k; } } emu_late.resize(k); }
    for (int w : order) if ((size_t)fibers[w*32].cta < emu_delay.size() && emu_delay[fibers[w*32].cta] > (long)emu_sweeps) continue; else for (int l = 0; l < 32; ++l) { Fiber& fb = fibers[w * 32 + l]; if (fb.done) continue; cur = &fb; emu_switch(&sched_sp, fb.sp); if (fb.done) --left; }
    idle = left == before ? idle + 1 : 0;
    if (idle > 3000000) { printf("HANG\n"); abort(); }
  }
  for (auto& fb : fibers) free(fb.stack);
}


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
