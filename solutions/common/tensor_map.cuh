// Tiles of a tensor in global memory, copied by the copy engine: PTX of sm_90 and later.
//
// The host describes the tensor and the box; the kernel takes the map as a __grid_constant__
// parameter. Tiles have rows of 128 bytes whose 16-byte chunks are permuted as the tensor cores
// expect them: chunk c of row r lies at place c ^ r % 8. A tile starts at a multiple of 1024 bytes.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "async_copy.cuh"

// Begins to fetch the map itself.
__device__ __forceinline__ void prefetch_map(const CUtensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}

// The box whose first element has the given coordinates; its bytes count on the barrier.
__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, uint64_t* barrier,
                                         int c0, int c1) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1)
      : "memory");
}

__device__ __forceinline__ void copy_box(void* shared, const CUtensorMap* map, uint64_t* barrier,
                                         int c0, int c1, int c2, int c3, int c4) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "r"(c4)
      : "memory");
}

// A map of bytes with DIMS dimensions, the innermost first and contiguous. sizes: elements;
// strides: bytes from the second dimension on, multiples of 16; box: elements, the innermost 128.
// Boxes that reach beyond the tensor are filled up with zeros. Returns false where the driver
// refuses it.
template <int DIMS>
inline bool make_byte_map(CUtensorMap& map, const void* base, const uint64_t (&sizes)[DIMS],
                          const uint64_t (&strides)[DIMS - 1], const uint32_t (&box)[DIMS]) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = {};
  constexpr unsigned INTRODUCED = 12000;  // the driver interface's release
#if CUDART_VERSION >= 12050
  const cudaError_t error = cudaGetDriverEntryPointByVersion(
      "cuTensorMapEncodeTiled", &found, INTRODUCED, cudaEnableDefault, &result);
#else  // as of the toolkit's own release
  static_assert(CUDART_VERSION >= INTRODUCED, "the driver interface is there");
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess || found == nullptr) return false;
  cuuint64_t all_sizes[DIMS], all_strides[DIMS];
  cuuint32_t all_box[DIMS], steps[DIMS];
  for (int i = 0; i < DIMS; ++i) {
    all_sizes[i] = sizes[i], all_box[i] = box[i], steps[i] = 1;
    all_strides[i] = i < DIMS - 1 ? strides[i] : 0;
  }
  return reinterpret_cast<Encode>(found)(
             &map, CU_TENSOR_MAP_DATA_TYPE_UINT8, DIMS, const_cast<void*>(base), all_sizes,
             all_strides, all_box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}
