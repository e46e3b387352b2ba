#pragma once
#include "async_copy.cuh"
static inline uint32_t cluster_rank() { return F->cta % M->cluster; }
static inline void arrive_cluster() { ++F->arrived; ++M->clusters[F->cta / M->cluster][F->arrived]; ++M->progress; }
static inline void wait_cluster() { const int c = F->cta / M->cluster, p = F->arrived, n = M->cluster * M->threads; wait_until("cluster", [=] { return M->clusters[c][p] == n; }); }
static inline uint32_t address_in(uint32_t a, uint32_t rank) { return a % SMEM + uint32_t((F->cta / M->cluster * M->cluster + rank) * SMEM); }
static inline void landed_(uint32_t bar, int bytes) {
  const int cta = bar / SMEM; if (M->fibers[size_t(cta) * M->threads].done && M->fibers[size_t(cta) * M->threads + 255].done) { printf("copy into a CTA that ended\n"); abort(); }
  MBar& m = bar_(bar); m.tx -= bytes; settle_(m);
}
static inline void send(uint32_t a, float2 v, uint32_t bar) { auto go = [=] { memcpy(at_(a), &v, 8); landed_(bar, 8); }; if (chaos_) flying_.push_back(go); else go(); }
static inline void copy_to_cluster(uint32_t to, uint32_t from, uint32_t bytes, uint32_t bar) { if (to % 16 || from % 16 || bytes % 16) abort(); auto go = [=] { memcpy(at_(to), at_(from), bytes); landed_(bar, bytes); }; if (chaos_) flying_.push_back(go); else go(); }
static inline void send(uint32_t a, const uint32_t (&w)[4], uint32_t bar) { if (a % 16) abort(); struct W { uint32_t v[4]; } x; memcpy(&x, w, 16); auto go = [=] { memcpy(at_(a), &x, 16); landed_(bar, 16); }; if (chaos_) flying_.push_back(go); else go(); }
