// Warp-wide matrix stores: PTX of sm_90 and later.
#pragma once

#include <cstdint>

// 8x8 tiles of 16-bit elements, each held as mma.sync holds a result: row l / 4, columns
// 2 (l % 4) and one more in a register. Columns of a tile become rows of 16 bytes; lane l names
// the place of column l % 8 of tile l / 8.
__device__ __forceinline__ void store_tiles_transposed(uint32_t row_address,
                                                       const uint32_t (&tiles)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   row_address),
               "r"(tiles[0]), "r"(tiles[1]), "r"(tiles[2]), "r"(tiles[3])
               : "memory");
}

// Two tiles: lanes 0 to 15 name the places.
__device__ __forceinline__ void store_tiles_transposed(uint32_t row_address,
                                                       const uint32_t (&tiles)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(row_address),
               "r"(tiles[0]), "r"(tiles[1])
               : "memory");
}
