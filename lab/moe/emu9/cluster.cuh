#pragma once
#include "async_copy.cuh"
extern int emu_cluster;
struct EmuCluster { int arrived = 0, gen = 0; };
extern std::vector<EmuCluster> emu_clusters; extern std::vector<int> emu_arrival;
char* base_of(int cta);
inline uint32_t cluster_rank() { return cur->cta % emu_cluster; }
inline int emu_index() { return cur->cta * emu_block_dim.x + cur->tid.x; }
inline void arrive_cluster() {
  EmuCluster& c = emu_clusters[cur->cta / emu_cluster];
  int& mine = emu_arrival[emu_index()]; if (mine >= 0) { printf("arrived twice\n"); abort(); }
  mine = c.gen; if (++c.arrived == emu_cluster * (int)emu_block_dim.x) c.arrived = 0, ++c.gen;
}
inline void wait_cluster() {
  EmuCluster& c = emu_clusters[cur->cta / emu_cluster]; int& mine = emu_arrival[emu_index()];
  if (mine < 0) { printf("wait without arrival\n"); abort(); }
  while (c.gen <= mine) yield(); mine = -1;
}
inline uint32_t address_in(uint32_t a, uint32_t rank) { if (a >> 24) { printf("address\n"); abort(); } return (rank + 1) << 24 | a; }
inline char* emu_remote(uint32_t a) { int rank = (int)(a >> 24) - 1; if (rank < 0 || rank >= emu_cluster) { printf("rank\n"); abort(); } return base_of(cur->cta / emu_cluster * emu_cluster + rank) + (a & 0xffffff); }
inline void send(uint32_t to, float2 v, uint32_t barrier) {
  for (int i = rand() % 5; i-- > 0;) yield();  // lands later
  if (to % 8) { printf("send align\n"); abort(); }
  if ((to >> 24) != (barrier >> 24)) { printf("barrier elsewhere\n"); abort(); }
  memcpy(emu_remote(to), &v, 8); bar_tx((uint64_t*)emu_remote(barrier), 8);
}
inline void send(uint32_t to, uint32_t v, uint32_t barrier) {
  for (int i = rand() % 5; i-- > 0;) yield();
  if ((to >> 24) != (barrier >> 24)) { printf("barrier elsewhere\n"); abort(); }
  memcpy(emu_remote(to), &v, 4); bar_tx((uint64_t*)emu_remote(barrier), 4);
}
