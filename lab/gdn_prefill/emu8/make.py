import re,subprocess,sys,os
R='clones/prefill8/solutions/'; out='clones/prefill8-lab/emu/'
def fn(text,name):
    i=text.index(name); i=text.rindex('__device__',0,i); j=text.index('\n}\n',i)+3; return text[i:j]
w=open(R+'common/warpgroup.cuh').read(); r=open(R+'common/warpgroup_rows.cuh').read()
wg='#pragma once\n#include "tensor_core_f16.cuh"\n'+'\n'.join(fn(w,n) for n in ('swizzled(','describe_tile(','at_step('))+'''
inline void begin_products() {}
struct Frag { uint32_t a[4]; };
inline bool as_bf16 = false;
inline float value_of(uint32_t x, int i) { if (as_bf16) return __uint_as_float(i ? x & 0xffff0000u : x << 16); return f16_of(x, i); }
inline float smem_b(uint64_t d, int k, int n, bool rows) {
  const uint32_t start = (d & 0x3fff) << 4, lbo = (d >> 16 & 0x3fff) << 4, sbo = (d >> 32 & 0x3fff) << 4;
  if (d >> 62 != 1 || (start & 0x380)) { printf("descriptor\\n"); abort(); }
  uint32_t at = rows ? start + n / 64 * lbo + k / 8 * sbo + k % 8 * 128 + n % 64 * 2
                     : start + n / 8 * sbo + n % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  return value_of(half_at(at), 0);
}
template <int N> inline void wgmma(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds, bool rows) {
  Frag f = {{a[0], a[1], a[2], a[3]}};
  emu::collect(f, [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < N; ++i) {
      const int row = l / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      float s = 0;
      for (int k = 0; k < 16; ++k)
        s += value_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2) * smem_b(b, k, col, rows);
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
open(out+'shelf/warpgroup_rows_bf16.cuh','w').write('''#pragma once
#include "warpgroup_rows.cuh"
template <int N> inline void multiply_rows_bf16(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds) {
  Frag f = {{a[0], a[1], a[2], a[3]}};
  emu::collect(f, [&](auto at) {
    as_bf16 = true;
    const int l = emu::lane();
    for (int i = 0; i < N; ++i) {
      const int row = l / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      double s = 0;
      for (int k = 0; k < 16; ++k)
        s += (double)value_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2) * smem_b(b, k, col, true);
      c[i] = adds ? c[i] + s : s;
    }
    as_bf16 = false;
    return 0;
  });
}
''')
for f in ('plan.cuh','gates.cuh','order.cuh','teams.cuh','solve.cuh','segments.cuh','scan_plan.cuh','seams.cuh','send.cuh','scan.cuh','walk.cuh','prefill.cu'):
    t=open(R+'gdn_prefill/'+f).read()
    if f=='prefill.cu':
        t=t[:t.index('void check_error')]+'}  // namespace\n'
        t=re.sub(r'#include <tvm.*\n','',t)
    t=t.replace('extern __shared__ __align__(1024) uint8_t memory[];','')
    t=t.replace('__device__ int','int').replace('(double)','(double)')
    import os
    if f=='plan.cuh' and os.environ.get('CUT'):
        a,b,c=os.environ['CUT'].split(',')
        assert 'SECOND = 20, THIRD = 96, FOURTH = 160' in t
        t=t.replace('SECOND = 20, THIRD = 96, FOURTH = 160',f'SECOND = {a}, THIRD = {b}, FOURTH = {c}').replace('LONG = 8','LONG = 2')
    open(out+'src/'+f,'w').write(t)
open(out+'emu.cpp','w').write('''#include "machine.h"
#include "src/prefill.cu"
extern "C" int solve_ctas = 2, scan_ctas = 5;
extern "C" long scratch_bytes(long t, long n) { return (t / 64 + n) * SLOT_BYTES + 16 + count_handed(t / 64 + n, t, n); }
extern "C" int cuts(int n, int* lengths, int tokens, int solve, int* out) {
  static Order o; static Segments g; memset(&g, 0xff, sizeof(g)); Args args = {}; args.tokens = tokens; args.num_seqs = n; args.solve_ctas = solve;
  o.chunks = 0; for (int i = 0; i < n; ++i) o.seqs[i] = i, o.lengths[i] = lengths[i], o.chunks += lengths[i];
  emu::run_cta(32, {0, 0, 0}, [&] { cut_sequences(g, o, args); __syncwarp();
    for (int u = 0; u < g.units; ++u) { Part p = find_part(g, u); if (threadIdx.x == 0) { int* to = out + 8 * u; to[0] = p.segment; to[1] = g.seqs[p.segment]; to[2] = p.first; to[3] = p.chunks; to[4] = p.v_head; to[5] = p.half; to[6] = p.is_transition; to[7] = g.laters[p.segment] + 16 * (g.nexts[p.segment] + 1); } } });
  return g.units;
}
extern "C" void prefill(void** p, float scale, int tokens, int seqs, int groups) { // most_whole
  Args args = {(const __nv_bfloat16*)p[0], (const __nv_bfloat16*)p[1], (const __nv_bfloat16*)p[2], (const float*)p[3],
    (const float*)p[4], (const __nv_bfloat16*)p[5], (const float*)p[6], (const __nv_bfloat16*)p[7], (const int64_t*)p[8],
    (__nv_bfloat16*)p[9], (float*)p[10], (uint8_t*)p[11], scale, tokens, seqs, tokens / 64 + seqs, groups, 0, solve_ctas, scan_ctas};
  args.most_split = seqs > SCAN_THREADS ? 0 : std::min(seqs, args.slots / (std::max(groups, 0) + 1));
  auto junk = [] { for (size_t i = 0; i < sizeof(memory); ++i) memory[i] = 0xff; };
  if (groups < 0) {
    for (int x = 0; x < seqs; ++x) for (unsigned y = 0; y < 8; ++y) for (unsigned z = 0; z < DIM / WALK_ROWS; ++z)
      emu::run_cta(WALK_THREADS, {unsigned(x), y, z}, [&] { walk_kernel(args); });
    return;
  }
  static_assert(sizeof(SolveCta) <= sizeof(memory) && sizeof(ScanMemory) <= sizeof(memory));
  if (tokens > 0) for (int x = 0; x < args.solve_ctas; ++x) { junk(); emu::run_cta(SOLVE_THREADS, {unsigned(x), 0, 0}, [&] { solve_kernel(args); }); }
  else *taken_units(args) = 0;
  for (int x = 0; x < args.scan_ctas; ++x) { junk(); emu::run_cta(SCAN_THREADS, {unsigned(x), 0, 0}, [&] { scan_kernel(args); }); }
}
''')
subprocess.run(['g++','-O2','-std=c++17','-shared','-fPIC','-w','-I/usr/local/cuda-13.0/include','-I'+out+'shelf','-o',out+os.environ.get('SO','emu.so'),out+'emu.cpp'],check=True)
