#pragma once
#include "tensor_map.cuh"
extern long emu_prefetched;
inline void prefetch_box(const CUtensorMap* m, int c0, int c1, int c2, int c3, int c4) { FakeMap f; memcpy(&f, m, sizeof f); int c[5]={c0,c1,c2,c3,c4}; for(int i=0;i<5;++i) if (c[i] < 0 || c[i]+f.box[i] > f.sizes[i]) { printf("prefetch out of bounds\n"); abort(); } ++emu_prefetched; }
