#include "emu.h"
#include "fp8_products.cuh"
#include "cluster.cuh"
int emu_cluster = 1; std::vector<EmuCluster> emu_clusters; std::vector<int> emu_arrival;
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
  srand(seed); emu_clusters.assign(n / emu_cluster + 1, EmuCluster()); emu_arrival.assign((size_t)n * threads, -1);
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
  size_t left = fibers.size(); uint64_t idle = 0;
  std::vector<int> order(n * threads / 32); for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  while (left) {
    for (size_t i = order.size(); i-- > 1;) std::swap(order[i], order[rand() % (i + 1)]);
    size_t before = left;
    for (int w : order) for (int l = 0; l < 32; ++l) { Fiber& fb = fibers[w * 32 + l]; if (fb.done) continue; cur = &fb; emu_switch(&sched_sp, fb.sp); if (fb.done) --left; }
    idle = left == before ? idle + 1 : 0;
    if (idle > 3000000) { printf("HANG\n"); abort(); }
  }
  for (auto& fb : fibers) free(fb.stack);
}

void tile_product(uint64_t a, uint64_t b, int N, float* D) {
  static float A[64 * 32], B[256 * 32]; fetch_rows(a, 64, A); fetch_rows(b, N, B);
  for (int m = 0; m < 64; ++m) for (int n = 0; n < N; ++n) { float s = 0; for (int k = 0; k < 32; ++k) s += A[m * 32 + k] * B[n * 32 + k]; D[m * N + n] = s; }
}

