"""Rates of wgmma e4m3 as moe's tiles use it. gen.py OUT.cu: kernels; run.sh builds and runs them (one GPU, 20 s).
A variant: N columns, RS or SS, products in flight (of 4 k steps each), promotions of N/2 multiply-adds a thread for each product, warpgroups."""
import sys
VARIANTS = [(n, rs, flight, add, groups) for n in (64, 128, 256) for rs in (1, 0) for flight, add in ((1, 0), (2, 0), (1, 1), (2, 1)) for groups in (1, 2)
            if n * flight + 0 <= 256 and not (n == 256 and add) and not (n == 128 and flight == 2 and add)]
def mma(n, rs):
    regs = n // 2
    d = ", ".join(f"%{i}" for i in range(regs))
    if rs: a, b, p = "{" + ", ".join(f"%{regs + i}" for i in range(4)) + "}", f"%{regs + 4}", f"%{regs + 5}"
    else: a, b, p = f"%{regs}", f"%{regs + 1}", f"%{regs + 2}"
    outs = ", ".join(f'"+f"(d[{i}])' for i in range(regs))
    ins = ('"r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(1)' if rs else '"l"(a), "l"(b), "n"(1)')
    imm = ", 1, 1" if True else ""
    return f'''__device__ __forceinline__ void mma_{n}_{"rs" if rs else "ss"}(float (&d)[{regs}], {"const uint32_t (&a)[4]" if rs else "uint64_t a"}, uint64_t b) {{
  asm volatile("{{ .reg .pred q; setp.ne.b32 q, {p}, 0; wgmma.mma_async.sync.aligned.m64n{n}k32.f32.e4m3.e4m3 {{{d}}}, {a}, {b}, q{imm}; }}" : {outs} : {ins});
}}
'''
HEAD = '''#include <cstdint>
#include <cstdio>
__device__ __forceinline__ uint64_t describe(const void* p) {  // 128-byte swizzle, as describe_tile()
  uint64_t a = __cvta_generic_to_shared(p);
  return (a & 0x3ffff) >> 4 | uint64_t{1} << 16 | uint64_t{64} << 32 | uint64_t{1} << 62;
}
__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int K> __device__ __forceinline__ void await() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(K) : "memory"); }
template <int R> __device__ __forceinline__ void hold(float (&d)[R]) {
#pragma unroll
  for (int i = 0; i < R; ++i) asm volatile("" : "+f"(d[i])::"memory");
}
'''
def kernel(n, rs, flight, add, groups):
    name, regs = f"k_{n}_{rs}_{flight}_{add}_{groups}", n // 2
    total = 256 // n  # products of a block of k of 256 weight rows
    body = ""
    issue = lambda f, i: f"fence(); " + " ".join(f"mma_{n}_{'rs' if rs else 'ss'}(d[{f}], {'a[%d]' % k if rs else 'sa + %d' % (2 * k)}, sb + {(i * n * 128 >> 4) + 2 * k});" for k in range(4)) + " commit();"
    promote = lambda f, i: f"hold(d[{f}]); " + (f"for (int j = 0; j < {regs}; ++j) acc[{i % (2 if n == 64 else 1)}][j] += d[{f}][j] * (j & 2 ? s1 : s0);" if add else "")
    if flight == 1:
        for i in range(total): body += f"    {issue(0, i)} await<0>(); {promote(0, i)}\n"
    else:
        for i in range(total): body += f"    {issue(i % 2, i)} await<1>(); {promote(1 - i % 2, i)}\n"
    return name, f'''__global__ void __launch_bounds__({128 * groups}, 1) {name}(float* out, unsigned* cycles, int blocks) {{
  extern __shared__ __align__(1024) uint8_t memory[];
  for (int i = threadIdx.x; i < 48 * 1024 / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(memory)[i] = (i * 2654435761u) & 0xb7b7b7b7;
  __syncthreads();
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  float d[{flight}][{regs}] = {{}}, acc[{2 if n == 64 else 1}][{regs}] = {{}};
  uint32_t a[4][4];
  for (int k = 0; k < 4; ++k) for (int i = 0; i < 4; ++i) a[k][i] = reinterpret_cast<uint32_t*>(memory)[threadIdx.x * 16 + k * 4 + i];
  const uint64_t sb = describe(memory), sa = describe(memory + 32768 + threadIdx.x / 128 * 8192);
  float s0 = out[0], s1 = out[1];
  (void)a; (void)sa; (void)s0; (void)s1; (void)acc;
  __syncthreads();
  const unsigned start = clock();
#pragma unroll 1
  for (int block = 0; block < blocks; ++block) {{
{body}  }}
  await<0>(); {"".join(f"hold(d[{f}]); " for f in range(flight))}
  const unsigned end = clock();
  if (threadIdx.x == 0) cycles[blockIdx.x] = end - start;
  float sum = 0;
  for (int i = 0; i < {regs}; ++i) {{ sum += {"+".join(f"d[{f}][i]" for f in range(flight))} + acc[0][i]{" + acc[1][i]" if n == 64 else ""}; }}
  if (sum == 12345.678f) out[threadIdx.x] = sum;
}}
'''
names, text = [], HEAD + "".join(mma(n, rs) for n in (64, 128, 256) for rs in (1, 0))
for v in VARIANTS:
    name, code = kernel(*v); names.append(name); text += code
text += '''int main() {
  float* out; unsigned* cycles; cudaMalloc(&out, 4096); cudaMalloc(&cycles, 4096); cudaMemset(out, 0, 4096);
  static unsigned host[132];
  const int blocks = 2000;
  struct { const char* name; void (*run)(float*, unsigned*, int); int threads; } all[] = {
''' + ",\n".join(f'    {{"{n}", {n}, {128 * int(n[-1])}}}' for n in names) + '''};
  printf("cycles a block of 256 weight rows x 128 k, each warpgroup 64 rows: tensor cores alone 512 a warpgroup\\n%-20s %10s %10s %12s\\n", "N_RS_flight_add_wgs", "one CTA", "132 CTAs", "us of 132");
  for (auto& v : all) {
    cudaFuncSetAttribute(v.run, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024);
    double c[2]; float ms = 0;
    for (int grid = 1, i = 0; i < 2; grid = 132, ++i) {
      v.run<<<grid, v.threads, 64 * 1024>>>(out, cycles, 100);
      cudaEvent_t e0, e1; cudaEventCreate(&e0); cudaEventCreate(&e1);
      cudaEventRecord(e0); v.run<<<grid, v.threads, 64 * 1024>>>(out, cycles, blocks); cudaEventRecord(e1);
      cudaDeviceSynchronize(); cudaEventElapsedTime(&ms, e0, e1);
      cudaMemcpy(host, cycles, 4 * grid, cudaMemcpyDeviceToHost);
      double sum = 0; for (int k = 0; k < grid; ++k) sum += host[k];
      c[i] = sum / grid / blocks;
    }
    printf("%-20s %10.0f %10.0f %12.1f  %s\\n", v.name, c[0], c[1], ms * 1e3, cudaGetErrorString(cudaGetLastError()));
  }
}
'''
open(sys.argv[1], "w").write(text)
