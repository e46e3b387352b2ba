#include "emu.h"
#include <algorithm>
#include <random>
Machine* M; Fiber* F; uint32_t seed_ = 1; bool chaos_ = false; std::vector<std::function<void()>> flying_;
#include "kernel.inc"
template <int C> void body(Args args) { attend_kernel<C>(args); }
static std::function<void()> entry;
static void trampoline() { entry(); F->done = true;
  if (F->groups.size() > 1 || !F->groups[0].empty()) for (auto& g : F->groups) if (!g.empty()) { printf("thread %d of CTA %d ended with copies in flight\n", F->tid.x, F->cta); break; }
  if (M->cluster > 1) for (int p = F->arrived + 1; p < 6; ++p) ++M->clusters[F->cta / M->cluster][p];
  ++M->progress; swapcontext(&F->context, &M->main); }
static int run(int cluster, int tokens, Args args) {
  static char* arena = nullptr; static std::vector<char*> stacks;
  for (int t = 0; t < tokens; ++t) {   // one cluster at a time
    Machine m; M = &m; m.threads = THREADS; m.ctas = cluster; m.cluster = cluster;
    if (!arena) arena = (char*)aligned_alloc(1024, 16 * SMEM);
    memset(arena, 0xff, 16 * SMEM); m.arena = arena;
    m.fibers.resize(cluster * THREADS); m.warps.resize(cluster * THREADS / 32); m.clusters.assign(1, std::vector<int>(8, 0));
    while (stacks.size() < m.fibers.size()) stacks.push_back((char*)malloc(48 * 1024));
    entry = [&] { switch (cluster) { case 16: return body<16>(args); case 8: return body<8>(args); case 2: return body<2>(args); default: return body<1>(args); } };
    for (size_t i = 0; i < m.fibers.size(); ++i) {
      Fiber& f = m.fibers[i]; f.tid.x = i % THREADS; f.cta = i / THREADS; f.bid.x = t * cluster + f.cta;
      getcontext(&f.context); f.context.uc_stack.ss_sp = stacks[i]; f.context.uc_stack.ss_size = 48 * 1024; f.context.uc_link = nullptr;
      makecontext(&f.context, trampoline, 0);
    }
    size_t live = m.fibers.size(); int idle = 0;
    std::vector<uint32_t> order(m.fibers.size()); for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    while (live) {
      const uint64_t before = m.progress; live = 0;
      if (chaos_) { for (size_t i = order.size() - 1; i > 0; --i) std::swap(order[i], order[rnd_() % (i + 1)]);
        for (size_t i = 0; i < flying_.size();) if (rnd_() % 8 == 0) { auto go = flying_[i]; flying_[i] = flying_.back(); flying_.pop_back(); go(); } else ++i; }
      const uint32_t slow = rnd_(), slower = rnd_() % 4;  // whole warps and CTAs lag
      for (uint32_t i : order) { Fiber& f = m.fibers[i]; if (f.done) continue; ++live; if (chaos_ && ((f.tid.x / 32 * 7 + f.cta * 13 + slow) % 3 == 0 || (slower == 0 && (f.cta + slow) % 2))) continue; F = &f; swapcontext(&m.main, &f.context); }
      idle = m.progress == before ? idle + 1 : 0;
      if (idle > 200 && live && flying_.empty()) { std::map<std::string, int> w; for (auto& f : m.fibers) if (!f.done) ++w[std::string(f.what) + " cta " + std::to_string(f.cta) + " warp " + std::to_string(f.tid.x / 32)];
        printf("DEADLOCK token %d\n", t); int n = 0; for (auto& [k, v] : w) { printf("  %s: %d\n", k.c_str(), v); if (++n > 40) break; } return 1; }
    }
  }
  return 0;
}
extern "C" void chaos(int s) { seed_ = s; chaos_ = s != 0; }
extern "C" int attend(int cluster, int tokens, const void* qn, const void* qp, const void* ckv, const void* kpe, const int* idx, void* out, float* lse, float scale, int rows) {
  Args a = {(const __nv_bfloat16*)qn, (const __nv_bfloat16*)qp, (const __nv_bfloat16*)ckv, (const __nv_bfloat16*)kpe, idx, (__nv_bfloat16*)out, lse, scale, rows};
  return run(cluster, tokens, a);
}
