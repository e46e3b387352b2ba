// Thread-block clusters and their distributed shared memory: PTX of sm_90 and later.
#pragma once

#include <cstdint>

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Says "I am here". The relaxed form orders no access of the thread, neither write nor read: the
// releasing one waits for all writes to reach the L2, hundreds of cycles. So data travels with send
// and copy_to_cluster, which count on a barrier. And where an arrival lets others overwrite what
// this thread has read or written, publish_shared() stands before it: that fence orders the
// thread's accesses to shared memory before those of the async proxy, which copy_to_cluster writes
// through. On sm_90 it holds a MEMBAR of the CTA, which waits for all of them.
__device__ __forceinline__ void arrive_cluster() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

// Waits for every thread of the cluster that has not ended.
__device__ __forceinline__ void wait_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// A shared-memory address of this CTA as the same place of another CTA of the cluster.
__device__ __forceinline__ uint32_t address_in(uint32_t address, uint32_t rank) {
  uint32_t remote;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

// A store into another CTA that counts its bytes on a barrier there.
__device__ __forceinline__ void send(uint32_t address, uint32_t value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%0], %1, [%2];" ::"r"(
          address),
      "r"(value), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void send(uint32_t address, float2 value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(address),
      "f"(value.x), "f"(value.y), "r"(barrier)
      : "memory");
}

// From shared memory of this CTA to that of another, a multiple of 16 bytes, counted on a barrier
// there. publish_shared() comes before it.
__device__ __forceinline__ void copy_to_cluster(uint32_t to, uint32_t from, uint32_t bytes,
                                                uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, "
      "[%3];" ::"r"(to),
      "r"(from), "r"(bytes), "r"(barrier)
      : "memory");
}
