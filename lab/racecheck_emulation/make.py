import re,subprocess,sys,os
R=os.environ.get('TREE','clones/next-gdn')+'/solutions/'; out=os.environ.get('EMU','/tmp/ng/emu')+'/'
import shutil; HERE=os.path.dirname(os.path.abspath(__file__)); os.makedirs(out+'src',exist_ok=True); shutil.copytree(HERE+'/shelf',out+'shelf',dirs_exist_ok=True); [shutil.copy(HERE+'/'+f,out) for f in ('machine.h','rc.cpp')]
def fn(text,name):
    i=text.index(name); i=text.rindex('__device__',0,i); j=text.index('\n}\n',i)+3; return text[i:j]
w=open(R+'common/warpgroup.cuh').read(); r=open(R+'common/warpgroup_rows.cuh').read()
wg='#pragma once\n#include "tensor_core_f16.cuh"\n'+'\n'.join(fn(w,n) for n in ('swizzled(','describe_tile(','at_step('))+'''
inline void begin_products() {}
struct Frag { uint32_t a[4]; };
inline bool as_bf16 = false;
inline float value_of(uint32_t x, int i) { if (as_bf16) return __uint_as_float(i ? x & 0xffff0000u : x << 16); return f16_of(x, i); }
inline uint32_t smem_at(uint64_t d, int k, int n, bool rows) {
  const uint32_t start = (d & 0x3fff) << 4, lbo = (d >> 16 & 0x3fff) << 4, sbo = (d >> 32 & 0x3fff) << 4;
  if (d >> 62 != 1 || (start & 0x380)) { printf("descriptor\\n"); abort(); }
  uint32_t at = rows ? start + n / 64 * lbo + k / 8 * sbo + k % 8 * 128 + n % 64 * 2
                     : start + n / 8 * sbo + n % 8 * 128 + k * 2;
  at ^= (at >> 7 & 7) << 4;
  return at;
}
inline float smem_b(uint64_t d, int k, int n, bool rows) { return value_of(half_at(smem_at(d, k, n, rows)), 0); }
template <int N> inline void wgmma(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds, bool rows) {
  Frag f = {{a[0], a[1], a[2], a[3]}};
  if (rc_async) for (int k = 0; k < 16; ++k) for (int n = emu::lane(); n < 2 * N; n += 32) rc_touch(memory + smem_at(b, k, n, rows), 2, 0, __builtin_return_address(0));
  const auto each = [&](auto at) {
    const int l = emu::lane();
    for (int i = 0; i < N; ++i) {
      const int row = l / 4 + i / 2 % 2 * 8, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      float s = 0;
      for (int k = 0; k < 16; ++k)
        s += value_of(at(row % 8 * 4 + k % 8 / 2).a[row / 8 + k / 8 * 2], k % 2) * smem_b(b, k, col, rows);
      c[i] = adds ? c[i] + s : s;
    }
    return 0;
  };
  if (rc_products) emu::collect<true>(f, each); else emu::collect(f, each);
}
inline void multiply_f16(float (&c)[32], const uint32_t (&a)[4], uint64_t b, bool adds) { wgmma(c, a, b, adds, false); }
'''
open(out+'shelf/warpgroup.cuh','w').write(wg)
rows='#pragma once\n#include "warpgroup.cuh"\n'+'\n'.join(fn(r,n) for n in ('describe_rows(','at_rows('))+'''
inline void commit_products() {}
template <int P, int N> inline void wait_products(float (&c)[N]) {}
template <int N> inline void multiply_rows_f16(float (&c)[N], const uint32_t (&a)[4], uint64_t b, bool adds) { wgmma(c, a, b, adds, true); }
'''
open(out+'shelf/warpgroup_rows.cuh','w').write(rows+'\n#include "warpgroup_rows_bf16.cuh"\n')
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
for f in ('plan.cuh','gates.cuh','order.cuh','teams.cuh',*(['feed.cuh'] if os.path.exists(R+'gdn_prefill/feed.cuh') else []),'solve.cuh','segments.cuh','scan_plan.cuh','seams.cuh','send.cuh','scan.cuh','walk.cuh','prefill.cu'):
    t=open(R+'gdn_prefill/'+f).read()
    if f=='prefill.cu':
        t=t[:t.index('void check_error')]+'}  // namespace\n'
        t=re.sub(r'#include <tvm.*\n','',t)
    t=t.replace('extern __shared__ __align__(1024) uint8_t memory[];','')
    t=t.replace('__device__ int','int').replace('(double)','(double)')
    import os
    if f=='solve.cuh':
        assert t.count('is_faded = true;')==1
        t=t.replace('is_faded = true;','is_faded = true; ++emu::faded;')
    if os.environ.get('EXACT') and f in ('scan_plan.cuh','scan.cuh','send.cuh','seams.cuh'):
        W='wait_cta_phase('
        changes={'scan_plan.cuh':[('  int stage, parity;','  int stage, parity, round;'),(': stage(round',': round(round), stage(round'),('    ++stage;','    ++stage, ++round;'),('    const int at = stage + rounds;','    round += rounds; const int at = stage + rounds;'),
            (W+'&shared.known[place], (number - 1) / LISTED % 2 ^ 1)','wait_exact(&shared.known[place], (number - 1) / LISTED - 1)'),(W+'&shared.listed[place], (number - 1) / LISTED % 2)','wait_exact(&shared.listed[place], (number - 1) / LISTED)')],
          'scan.cuh':[(W+'&shared.full[turn.stage], turn.parity)','wait_exact(&shared.full[turn.stage], turn.round / Tuning::STAGES)'),
            (W+'&shared.left, parity)','wait_exact(&shared.left, emu::nth[emu::cur][0]++)'),(W+'&shared.left[turn.stage], parities >> turn.stage & 1)','wait_exact(&shared.left[turn.stage], emu::nth[emu::cur][turn.stage]++)')],
          'seams.cuh':[(W+'&shared.full[turn.stage], turn.parity)','wait_exact(&shared.full[turn.stage], turn.round / Tuning::STAGES)')],
          'send.cuh':[(W+'&barriers[round % Tuning::STAGES], (round / Tuning::STAGES - 1) % 2)','wait_exact(&barriers[round % Tuning::STAGES], round / Tuning::STAGES - 1)'),
            (W+'&shared.used[stage], parity)','wait_exact(&shared.used[stage], round / Tuning::STAGES - 1)'),(W+'&shared.done[stage], parity)','wait_exact(&shared.done[stage], round / Tuning::STAGES - 1)'),
            (W+'&shared.done[of % Tuning::STAGES], of / Tuning::STAGES % 2)','wait_exact(&shared.done[of % Tuning::STAGES], of / Tuning::STAGES)'),(W+'&shared.done[last % Tuning::STAGES], last / Tuning::STAGES % 2)','wait_exact(&shared.done[last % Tuning::STAGES], last / Tuning::STAGES)')]}
        for x,y in changes[f]: t=t.replace(x,y)
        assert W not in t,(f,t[t.index(W)-200:t.index(W)+100])
    if f=='plan.cuh' and os.environ.get('CUT'):
        a,b,c=os.environ['CUT'].split(',')
        assert 'SECOND = 20, THIRD = 48, FOURTH = 160' in t
        t=t.replace('SECOND = 20, THIRD = 48, FOURTH = 160',f'SECOND = {a}, THIRD = {b}, FOURTH = {c}').replace('LONG = 8','LONG = 2')
    open(out+'src/'+f,'w').write(t)
open(out+'emu.cpp','w').write('''#include "machine.h"
#include "src/prefill.cu"
extern "C" int solve_ctas = 2, scan_ctas = 5;
extern "C" long starvations() { const long x = emu::starvations; emu::starvations = 0; return x; }
extern "C" long ambiguous() { const long x = emu::ambiguous; emu::ambiguous = 0; return x; }
extern "C" long faded() { const long x = emu::faded; emu::faded = 0; return x; }
extern "C" long scratch_bytes(long t, long n) { return (t / 64 + n) * SLOT_BYTES + 16 + count_handed(t / 64 + n, t, n); }
extern "C" void prefill(void** p, float scale, int tokens, int seqs, int groups) { // most_whole
  Args args = {(const __nv_bfloat16*)p[0], (const __nv_bfloat16*)p[1], (const __nv_bfloat16*)p[2], (const float*)p[3],
    (const float*)p[4], (const __nv_bfloat16*)p[5], (const float*)p[6], (const __nv_bfloat16*)p[7], (const int64_t*)p[8],
    (__nv_bfloat16*)p[9], (float*)p[10], (uint8_t*)p[11], scale, tokens, seqs, tokens / 64 + seqs, groups, 0, solve_ctas, scan_ctas};
  args.most_split = seqs > SCAN_THREADS ? 0 : std::min(seqs, args.slots / (std::max(groups, 0) + 1));
  args.most_later = groups == 0 ? may_cut(tokens, seqs) : 0;
  emu::dumping = dump_bars; auto junk = [] { for (size_t i = 0; i < sizeof(memory); ++i) memory[i] = 0xff; };
  if (groups < 0) {
    for (int x = 0; x < seqs; ++x) for (unsigned y = 0; y < 8; ++y) for (unsigned z = 0; z < DIM / WALK_ROWS; ++z)
      emu::run_cta(WALK_THREADS, {unsigned(x), y, z}, [&] { walk_kernel(args); });
    return;
  }
  static_assert(sizeof(SolveCta) <= sizeof(memory) && sizeof(ScanMemory) <= sizeof(memory));
  static std::vector<uint8_t> kept; const size_t size = scratch_bytes(tokens, seqs); // REUSE: solved once, of one input a process
  if (getenv("REUSE") && !kept.empty()) memcpy(p[11], kept.data(), size); else if (tokens > 0) for (int x = 0; x < args.solve_ctas; ++x) { junk(); emu::run_cta(SOLVE_THREADS, {unsigned(x), 0, 0}, [&] { solve_kernel(args); }); }
  if (getenv("REUSE")) kept.assign((uint8_t*)p[11], (uint8_t*)p[11] + size);
  if (tokens > 0) {}
  else *taken_units(args) = 0;
  for (int x = 0; x < args.scan_ctas; ++x) { junk(); memset(emu::nth, 0, sizeof(emu::nth)); emu::run_cta(SCAN_THREADS, {unsigned(x), 0, 0}, [&] { if (args.most_later > 0) scan_kernel<true>(args); else scan_kernel<false>(args); }); }
}
''')

so=out+os.environ.get('SO','emu.so')
subprocess.run(['g++','-O1','-g','-std=c++17',*os.environ.get('DEFS','').split(),*(['-fsanitize=thread','-O1'] if not os.environ.get('FAST') else ['-O2']),'-fPIC','-w','-I/usr/local/cuda-13.0/include','-I'+out+'shelf','-c','-o',so+'.o',out+'emu.cpp'],check=True)
subprocess.run(['g++','-O2','-std=c++17','-fPIC','-c','-o',out+'rc.o',out+'rc.cpp'],check=True)
subprocess.run(['g++','-shared','-o',so,so+'.o',out+'rc.o','-ldl'],check=True)
