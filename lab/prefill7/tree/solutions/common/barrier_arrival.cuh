// Arrivals at the barriers of named_barrier.cuh by threads that do not wait there.
#pragma once

// If `arrives`, the same in all lanes: one of the warps that barrier `number` of `threads` waits
// for. No branch: wgmma may be in flight.
__device__ __forceinline__ void arrive_threads_of(int number, int threads, bool arrives) {
  asm volatile(
      "{\n.reg .pred arrives;\nsetp.ne.u32 arrives, %2, 0;\n@arrives bar.arrive %0, %1;\n}" ::"r"(
          number),
      "r"(threads), "r"(static_cast<unsigned>(arrives))
      : "memory");
}
