// Warp-wide matrix stores: PTX of sm_90 and later.
#pragma once

#include <cstdint>

// Four 8x8 tiles of 16-bit elements, held as mma.sync holds its sums: the inverse of load_tiles.
// Lane l names row l % 8 of tile l / 8.
__device__ __forceinline__ void store_tiles(uint32_t row_address, const uint32_t (&tiles)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   row_address),
               "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
}
