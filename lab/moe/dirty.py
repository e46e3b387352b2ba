"""What lines that the flush leaves dirty in the L2 cost a stream of reads. python3 dirty.py, in a repository root."""
import statistics, sys
import cupy, torch
sys.path.insert(0, ".")
from harness import timing

SOURCE = r'''
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
extern "C" {
__device__ __forceinline__ uint32_t sa(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
// Each CTA reads chunks of 16 KiB, chunk i of all to CTA i % grid, STAGES in flight.
__global__ void __launch_bounds__(128, 1) stream(const char* from, long long chunks, int policy, float* out) {
  constexpr int STAGES = 12, BYTES = 16384;
  extern __shared__ __align__(1024) char ring[];
  __shared__ __align__(8) uint64_t full[STAGES];
  uint64_t hint = 0;
  if (policy == 1) asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(hint));
  if (policy == 2) asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(hint));
  if (policy == 3) asm volatile("createpolicy.fractional.L2::evict_unchanged.b64 %0, 1.0;" : "=l"(hint));
  if (policy == 4) asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(hint));
  if (threadIdx.x == 0) { for (int i = 0; i < STAGES; ++i) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(sa(full + i))); asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
  __syncthreads();
  if (threadIdx.x != 0) return;
  long long mine = (chunks - blockIdx.x + gridDim.x - 1) / gridDim.x;
  auto ask = [&](long long i) {
    const int s = i % STAGES;
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(sa(full + s)), "r"(BYTES) : "memory");
    const char* at = from + (i * gridDim.x + blockIdx.x) * (long long)BYTES;
    if (policy == 0) asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" :: "r"(sa(ring + s * BYTES)), "l"(at), "r"(BYTES), "r"(sa(full + s)) : "memory");
    else asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" :: "r"(sa(ring + s * BYTES)), "l"(at), "r"(BYTES), "r"(sa(full + s)), "l"(hint) : "memory");
  };
  for (long long i = 0; i < STAGES && i < mine; ++i) ask(i);
  for (long long i = 0; i < mine; ++i) {
    const int s = i % STAGES; const uint32_t parity = (i / STAGES) & 1;
    asm volatile("{\n.reg .pred p;\nl: mbarrier.try_wait.parity.shared.b64 p, [%0], %1;\n@!p bra l;\n}\n" :: "r"(sa(full + s)), "r"(parity) : "memory");
    if (i + STAGES < mine) ask(i + STAGES);
  }
  if (mine < 0) out[0] = ring[0];
}
__global__ void touch(const float4* from, long long n, float* out) {
  float s = 0;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) s += __ldg(from + i).x;
  if (s == 1.2345e30f) out[0] = s;
}
}
'''
module = cupy.RawModule(code=SOURCE, options=("-std=c++17", "-arch=sm_90a"))
stream, touch = module.get_function("stream"), module.get_function("touch")
RING = 12 * 16384
stream.max_dynamic_shared_size_bytes = RING + 1024
data = torch.empty(400 << 20, dtype=torch.int8, device="cuda").random_(-100, 100)
clean = torch.zeros(400 << 20, dtype=torch.int8, device="cuda")
out = torch.zeros(4, device="cuda")
make = timing._flush_buffer
class Flush:
    def __init__(self, device, reads):
        self.buffer, self.reads = make(device), reads
    def zero_(self):
        self.buffer.zero_()
        if self.reads:
            touch((1056,), (256,), (clean.data_ptr(), (400 << 20) // 16, out.data_ptr()))
current = cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream)
print("| MB | policy | flushed by writing, us | TB/s | then by reading, us | TB/s |")
timer = timing.select_timer("cupti", "cuda:0")
with current:
    for megabytes in (8, 22, 44, 88, 132, 176, 308):
        chunks = megabytes * 1000000 // 16384
        for policy, name in ((0, "none"), (1, "evict_first"), (2, "evict_last"), (3, "evict_unchanged"), (4, "evict_normal")):
            if policy > 1 and megabytes not in (44, 88, 176): continue
            row = []
            for reads in (False, True):
                timing._flush_buffer = lambda device, reads=reads: Flush(device, reads)
                call = lambda: stream((132,), (128,), (data.data_ptr(), chunks, policy, out.data_ptr()), shared_mem=RING + 1024)
                row.append(statistics.median(timer.measure(call, 3, 30).latency_us for _ in range(3)))
            print(f"| {megabytes} | {name} | {row[0]:.2f} | {chunks * 16384 / row[0] / 1e6:.2f} | {row[1]:.2f} | {chunks * 16384 / row[1] / 1e6:.2f} |", flush=True)
