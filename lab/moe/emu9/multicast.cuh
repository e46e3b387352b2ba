#pragma once
#include "cluster.cuh"
#include "tensor_map.cuh"
inline void copy_box_to(uint16_t ranks, void* s, const CUtensorMap* m, uint64_t* b, int c0, int c1, int c2, int c3, int c4) {
  for (int r = 0; r < emu_cluster; ++r) if (ranks >> r & 1) do_box(s, m, b, {c0, c1, c2, c3, c4}, base_of(cur->cta / emu_cluster * emu_cluster + r));
}
inline void arrive_at(uint64_t* b, uint32_t rank) { bar_arrive((uint64_t*)(base_of(cur->cta / emu_cluster * emu_cluster + rank) + shared_address(b))); }
inline void meet_cluster() { arrive_cluster(); wait_cluster(); }
