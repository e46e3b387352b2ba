// Kernels that do nothing, or little, in the launch shape of attend_kernel<16> with one token.
#include <cuda_runtime.h>

#include <cstdint>

struct Args {
  const int* indices;  // [2048]
  const char* rows;    // [num_rows, 1024 bytes]
  char* output;        // 16 KiB and on
  long long* clocks;
  int zero;            // 0
};

// Straight code, or the same instructions in a loop.
template <int TIMES>
__device__ __forceinline__ void work(uint32_t (&x)[4]) {
#pragma unroll
  for (int i = 0; i < TIMES; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("mad.lo.u32 %0, %0, %0, 7;" : "+r"(x[j]));
  }
}

enum { NOTHING, LOAD, ROW, STORES, TOUCHED };

template <int DOES, bool MANY_REGISTERS>
__device__ __forceinline__ void body(const Args& args) {
  const long long begin = clock64();
  if (MANY_REGISTERS && args.zero != 0) {
    float x[150];
    const volatile float* from = reinterpret_cast<const volatile float*>(args.rows);
#pragma unroll
    for (int i = 0; i < 150; ++i) x[i] = from[i * args.zero + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 150; ++i) reinterpret_cast<volatile float*>(args.output)[i * 7 + threadIdx.x] = x[i];
  }
  if (DOES == NOTHING) return;
  if (DOES == TOUCHED && threadIdx.x == 300) {
    asm volatile("prefetch.global.L2 [%0];" ::"l"(args.output) : "memory");
    asm volatile("prefetch.global.L2 [%0];" ::"l"(args.output + 16384) : "memory");
  }
  int index = args.indices[threadIdx.x];
  asm volatile("" : "+r"(index));
  if (DOES == LOAD) {
    if (index == -7) args.output[threadIdx.x] = 1;
  } else if (blockIdx.x == 0 && threadIdx.x < 256) {
    uint4 row = *reinterpret_cast<const uint4*>(args.rows + int64_t(index & 0xffff) * 1024 + threadIdx.x % 64 * 16);
    asm volatile("" : "+r"(row.x), "+r"(row.y), "+r"(row.z), "+r"(row.w));
    if (DOES == ROW) {
      if (row.x == 0x12345678 && row.y == 0x12345678) args.output[threadIdx.x] = 1;
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) reinterpret_cast<uint4*>(args.output)[threadIdx.x + 256 * i] = row;
    }
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) *args.clocks = clock64() - begin;
}

template <int DOES, bool MANY_REGISTERS>
__global__ void __launch_bounds__(384, 1) plain(const __grid_constant__ Args args) {
  body<DOES, MANY_REGISTERS>(args);
}

template <bool STRAIGHT>
__global__ void __launch_bounds__(384, 1) code(const __grid_constant__ Args args) {
  const long long begin = clock64();
  uint32_t x[4] = {threadIdx.x, 1, 2, 3};
  if (STRAIGHT) {
    work<512>(x);
  } else {
#pragma unroll 1
    for (int i = args.zero; i < 32; ++i) work<16>(x);
  }
  if ((x[0] ^ x[1] ^ x[2] ^ x[3]) == 77) args.output[0] = 1;
  if (threadIdx.x == 0) *args.clocks = clock64() - begin;
}

using Kernel = void (*)(const Args);
struct Shape {
  const char* name;
  Kernel kernel;
  int ctas, cluster, threads, bytes;
};
constexpr int BYTES = 200656;  // of attend_kernel
static const Shape SHAPES[] = {
    {"a   nothing, 1 CTA of 32 threads", plain<NOTHING, false>, 1, 1, 32, 0},
    {"a2  16 CTAs of 384 threads", plain<NOTHING, false>, 16, 1, 384, 0},
    {"b0  cluster of 16, 32 threads each", plain<NOTHING, false>, 16, 16, 32, 0},
    {"b   cluster of 16, 384 threads each", plain<NOTHING, false>, 16, 16, 384, 0},
    {"c0  1 CTA of 384, 196 KiB of shared memory", plain<NOTHING, false>, 1, 1, 384, BYTES},
    {"c   b + 196 KiB of shared memory", plain<NOTHING, false>, 16, 16, 384, BYTES},
    {"c48 b + 40 KiB", plain<NOTHING, false>, 16, 16, 384, 40960},
    {"c99 b + 99 KiB", plain<NOTHING, false>, 16, 16, 384, 101376},
    {"d   c + registers as attend_kernel", plain<NOTHING, true>, 16, 16, 384, BYTES},
    {"e   d + one load of the index row", plain<LOAD, true>, 16, 16, 384, BYTES},
    {"e0  e without cluster and shared memory", plain<LOAD, true>, 16, 1, 384, 0},
    {"e2  e + a row behind it, by CTA 0", plain<ROW, true>, 16, 16, 384, BYTES},
    {"f   e2 + 16 KiB of output by CTA 0", plain<STORES, true>, 16, 16, 384, BYTES},
    {"f1  f, output touched ahead", plain<TOUCHED, true>, 16, 16, 384, BYTES},
    {"g   f, 1 CTA, no cluster", plain<STORES, true>, 1, 1, 384, BYTES},
    {"g0  f, 1 CTA, no shared memory", plain<STORES, true>, 1, 1, 384, 0},
    {"h   2048 instructions in a loop, 1 CTA of 32", code<false>, 1, 1, 32, 0},
    {"h1  the same as straight code, 32 KiB", code<true>, 1, 1, 32, 0},
    {"h2  loop, 256 threads", code<false>, 1, 1, 256, 0},
    {"h3  straight, 256 threads", code<true>, 1, 1, 256, 0},
};

extern "C" int count_floors() { return sizeof(SHAPES) / sizeof(SHAPES[0]); }
extern "C" const char* floor_name(int i) { return SHAPES[i].name; }
extern "C" int floor_registers(int i) {
  cudaFuncAttributes of = {};
  cudaFuncGetAttributes(&of, SHAPES[i].kernel);
  return of.numRegs;
}

extern "C" int launch_floor(int i, const void* indices, const void* rows, void* output, void* clocks, void* stream) {
  const Shape& shape = SHAPES[i];
  Args args = {static_cast<const int*>(indices), static_cast<const char*>(rows), static_cast<char*>(output), static_cast<long long*>(clocks), 0};
  cudaFuncSetAttribute(shape.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shape.bytes);
  if (shape.cluster > 8) cudaFuncSetAttribute(shape.kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(shape.cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(shape.ctas);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &attribute;
  config.numAttrs = shape.cluster > 1;
  return cudaLaunchKernelEx(&config, shape.kernel, args);
}
