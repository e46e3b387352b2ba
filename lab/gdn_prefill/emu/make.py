import re,subprocess,sys
R='clones/prefill/solutions/'; out='clones/prefill-lab/emu/'
def fn(text,name):
    i=text.index(name); i=text.rindex('__device__',0,i); j=text.index('\n}\n',i)+3; return text[i:j]
w=open(R+'common/warpgroup.cuh').read(); r=open(R+'common/warpgroup_rows.cuh').read()
wg='#pragma once\n#include "tensor_core_f16.cuh"\n'+'\n'.join(fn(w,n) for n in ('swizzled(','describe_tile(','at_step('))+'''
inline void begin_products() {}
struct Frag { uint32_t a[4]; };
inline float smem_b(uint64_t d, int k, int n, bool rows) {
  const uint32_t start = (d & 0x3fff) << 4, lbo = (d >> 16 & 0x3fff) << 4, sbo = (d >> 32 & 0x3fff) << 4;
  if (d >> 62 != 1 || (start & 0x380)) { printf("descriptor\\n"); abort(); }
  uint32_t at = rows ? start + n / 64 * lbo + k / 8 * sbo + k % 8 * 128 + n % 64 * 2
                     : start + n / 8 * sbo + n % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  return f16_of(half_at(at), 0);
}
template <int N> inline void wgmma(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds, bool rows) {
  Frag f = {{a[0], a[1], a[2], a[3]}};
  emu::collect(f, [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < N; ++i) {
      const int row = l / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      float s = 0;
      for (int k = 0; k < 16; ++k)
        s += f16_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2) * smem_b(b, k, col, rows);
      c[i] = adds ? c[i] + s : s;
    }
    return 0;
  });
}
inline void multiply_f16(float (&c)[32], const uint32_t (&a)[4], uint64_t b, bool adds) { wgmma(c, a, b, adds, false); }
'''
open(out+'shelf/warpgroup.cuh','w').write(wg)
rows='#pragma once\n#include "warpgroup.cuh"\n'+'\n'.join(fn(r,n) for n in ('describe_rows(','at_rows('))+'''
inline void commit_products() {}
template <int P, int N> inline void wait_products(float (&c)[N]) {}
template <int N> inline void multiply_rows_f16(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds) { wgmma(c, a, b, adds, true); }
'''
open(out+'shelf/warpgroup_rows.cuh','w').write(rows)
for f in ('plan.cuh','gates.cuh','solve.cuh','scan.cuh','walk.cuh','prefill.cu'):
    t=open(R+'gdn_prefill/'+f).read()
    if f=='prefill.cu':
        t=t[:t.index('void check_error')]+'}  // namespace\n'
        t=re.sub(r'#include <tvm.*\n','',t)
    t=t.replace('extern __shared__ __align__(1024) uint8_t memory[];','')
    t=t.replace('__device__ int','int').replace('(double)','(double)')
    open(out+'src/'+f,'w').write(t)
open(out+'emu.cpp','w').write('''#include "machine.h"
#include "src/prefill.cu"
extern "C" long scratch_bytes(long t, long n) { return (t / 64 + n) * SLOT_BYTES; }
extern "C" void prefill(void** p, float scale, int tokens, int seqs, int groups) { // most_whole
  Args args = {(const __nv_bfloat16*)p[0], (const __nv_bfloat16*)p[1], (const __nv_bfloat16*)p[2], (const float*)p[3],
    (const float*)p[4], (const __nv_bfloat16*)p[5], (const float*)p[6], (const __nv_bfloat16*)p[7], (const int64_t*)p[8],
    (__nv_bfloat16*)p[9], (float*)p[10], (uint8_t*)p[11], scale, tokens, seqs, tokens / 64 + seqs, groups, 0};
  args.most_split = seqs > SCAN_THREADS ? 0 : std::min(seqs, args.slots / (std::max(groups, 0) + 1));
  auto junk = [] { for (size_t i = 0; i < sizeof(memory); ++i) memory[i] = 0xff; };
  if (groups < 0) {
    for (int x = 0; x < seqs; ++x) for (unsigned y = 0; y < 8; ++y) for (unsigned z = 0; z < DIM / WALK_ROWS; ++z)
      emu::run_cta(WALK_THREADS, {unsigned(x), y, z}, [&] { walk_kernel(args); });
    return;
  }
  for (int x = 0; x < args.slots; ++x) for (unsigned y = 0; y < 4; ++y) { junk(); emu::run_cta(256, {unsigned(x), y, 0}, [&] { solve_kernel(args); }); }
  for (int x = 0; x < 8 * (seqs + args.most_split); ++x) { junk(); emu::run_cta(SCAN_THREADS, {unsigned(x), 0, 0}, [&] { scan_kernel(args); }); }
}
''')
subprocess.run(['g++','-O2','-std=c++17','-shared','-fPIC','-w','-I/usr/local/cuda-13.0/include','-I'+out+'shelf','-o',out+'emu.so',out+'emu.cpp'],check=True)
