import re,subprocess,sys,os
R=os.environ.get('TREE','REPO')+'/solutions/'; out=os.environ.get('EMU','/tmp/ng/emu')+'/'
import shutil; HERE=os.path.dirname(os.path.abspath(__file__)); os.makedirs(out+'src',exist_ok=True); shutil.copytree(HERE+'/shelf',out+'shelf',dirs_exist_ok=True); [shutil.copy(HERE+'/'+f,out) for f in ('machine.h',)]
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
  if (rc_async) for (int k = 0; k < 16; ++k) for (int n = emu::lane(); n < 2 * N; n += 32) rc_touch(emu::mem() + smem_at(b, k, n, rows), 2, 0, __builtin_return_address(0));
  const auto each = [&](auto at) {
    const int l = emu::lane();
    float x[2][16];
    for (int r = 0; r < 2; ++r) for (int k = 0; k < 16; ++k) x[r][k] = value_of(at(l / 4 * 4 + k % 8 / 2).a[r + k / 8 * 2], k % 2);
    for (int c2 = 0; c2 < N / 2; ++c2) {
      const int i = c2 / 2 * 4 + c2 % 2, col = i / 4 * 8 + 2 * (l % 4) + i % 2;
      float s0 = 0, s1 = 0;
      for (int k = 0; k < 16; ++k) { const float y = smem_b(b, k, col, rows); s0 += x[0][k] * y; s1 += x[1][k] * y; }
      c[i] = adds ? c[i] + s0 : s0; c[i + 2] = adds ? c[i + 2] + s1 : s1;
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
    t=re.sub(r'\(memory\)','(emu::mem())',t) if f=='prefill.cu' else t
    NEW='is_dropping' in open(R+'gdn_prefill/plan.cuh').read()
    def sub(x,y,n=1):
        global t
        assert t.count(x)==n,(f,x,t.count(x)); t=t.replace(x,y)
    if f=='feed.cuh':
        of='task' if NEW else 'before'
        c='count_release(parts_of(args, %s.slot, %s.qk_head));'%(of,of)
        t=t.replace(c,'if (!getenv("NO_CHECK")) check_landed(operands_of(args, %s.slot, %s.qk_head), sizeof(Operands)), check_landed(solved_of(args, %s.slot, %s.qk_head * SERVED), SERVED * sizeof(Solved)); '%(of,of,of,of)+c)
        W='wait_cta_phase('
        sub('for (uint32_t parity = 1;; parity ^= 1)','for (int rr = -1, parity = 1;; parity ^= 1, ++rr)')
        sub(W+'&barriers.done, parity ^ 1)','wait_exact(&barriers.done, rr - 1)'); sub(W+'&barriers.operands, parity)','wait_exact(&barriers.operands, rr)'); sub(W+'&barriers.reads, parity)','wait_exact(&barriers.reads, rr)'); sub(W+'&barriers.done, parity)','wait_exact(&barriers.done, rr)')
        assert W not in t
    if f=='teams.cuh':
        sub('for (uint32_t parity = 0;; parity ^= 1)','for (int rr = 0, parity = 0;; parity ^= 1, ++rr)')
        for n in ('rows','operands','done','free'): sub('wait_cta_phase(&barriers.%s, parity)'%n,'wait_exact(&barriers.%s, rr)'%n)
        sub('solve_chunk(shared, args.scale, head, block, parity)','emu::nth[emu::cur][3] = rr; solve_chunk(shared, args.scale, head, block, parity)')
    if f=='solve.cuh':
        sub('wait_cta_phase(head == 0 ? &shared.barriers.below : &shared.barriers.apart,','wait_exact(head == 0 ? &shared.barriers.below : &shared.barriers.apart,')
        sub('head == 0 ? parity ^ 1 : parity);','head == 0 ? emu::nth[emu::cur][3] - 1 : emu::nth[emu::cur][3]);')
        sub('wait_cta_phase(&shared.barriers.gates, parity)','wait_exact(&shared.barriers.gates, emu::nth[emu::cur][3])')
    if f=='order.cuh':
        sub('  const int lane = threadIdx.x % 32;\n#pragma unroll 1\n  for (int looks','  emu::Quiet quiet; const int lane = threadIdx.x % 32;\n#pragma unroll 1\n  for (int looks')
        sub('  wait_for_launches_before();\n  return most;','  emu::gave_up++; wait_for_launches_before();\n  return most;')
        if NEW: sub('>= SERVED;','>= (emu::mutant == 5 ? 1 : SERVED);')
    if f=='plan.cuh':
        sub('static constexpr int FEW = 8, LONG = 8;','static inline int FEW = 8, LONG = 8;'); sub('static constexpr int SECOND = 20, THIRD = 48, FOURTH = 160;','static inline int SECOND = 20, THIRD = 48, FOURTH = 160;')
    MUTANTS=NEW and {
      'feed.cuh':[
        ('if (is_storing && !is_first) store_writes(shared, args, before);\n      }\n      store_gates','if (emu::mutant != 16 && is_storing && !is_first) store_writes(shared, args, before);\n      }\n      if (emu::mutant == 16 && before.tokens > 0 && is_storing && !is_first) store_writes(shared, args, before);\n      store_gates'),
        ('if (!is_first) free_place(&barriers.below);','if (!is_first) { if (emu::mutant == 6) { __syncwarp(); arrive_for_warp(&barriers.below); } else free_place(&barriers.below); }'),
        ('        wait_exact(&barriers.done, rr - 1);','        if (emu::mutant != 7 || is_first) wait_exact(&barriers.done, rr - 1);')],
      'send.cuh':[('    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);\n    if (is_reused)','    if (emu::mutant == 1 && is_reused) drop_round(shared, args, round - Tuning::STAGES);\n    if (is_requesting && chunk >= solved) solved = await_chunk(args, work, chunk, chunks);\n    if (is_reused)'),
        ('    if (is_reused) drop_round(shared, args, round - Tuning::STAGES);','    if (is_reused) drop_round(shared, args, round - Tuning::STAGES + (emu::mutant == 2));'),
        ('  await_round_before(shared.done, round);\n  store_output(shared, args, round - Tuning::STAGES);\n  drop_round(shared, args, round - Tuning::STAGES);\n','  if (emu::mutant == 11) drop_round(shared, args, round - Tuning::STAGES);\n  if (emu::mutant != 4) await_round_before(shared.done, round);\n  store_output(shared, args, round - Tuning::STAGES);\n  drop_round(shared, args, round - Tuning::STAGES + (emu::mutant == 12));\n'),
        ('  sync_threads_of(1 + GROUPS, SENDERS);  // outputs','  if (emu::mutant != 14) sync_threads_of(1 + GROUPS, SENDERS);  // outputs'),
        ('work.groups == GROUPS ? solved_of','work.groups == GROUPS || emu::mutant == 10 ? solved_of'),
        ('  await_round_before(shared.used, round);\n  reuse_stage(shared, args, round);\n  if','  if (emu::mutant != 13) await_round_before(shared.used, round);\n  reuse_stage(shared, args, round);\n  if'),
        ('    await_count(halves_of(args, work.slot, work.v_head), 2 * HALVES);','    await_count(halves_of(args, work.slot, work.v_head), emu::mutant == 15 ? HALVES : 2 * HALVES);')],
      'scan.cuh':[('  const float* from = reinterpret_cast<const float*>(&shared.stages[turn.stage]);','  if (emu::mutant == 8) { arrive_once_a_warp(&shared.used[turn.stage]); arrive_once_a_warp(&shared.done[turn.stage]); }\n  const float* from = reinterpret_cast<const float*>(&shared.stages[turn.stage]);'),
        ('  arrive_once_a_warp(&shared.used[turn.stage]);\n  arrive_once_a_warp(&shared.done[turn.stage]);\n  turn.advance();\n}\n\n// Where','  if (emu::mutant != 8) { arrive_once_a_warp(&shared.used[turn.stage]);\n  arrive_once_a_warp(&shared.done[turn.stage]); }\n  turn.advance();\n}\n\n// Where')]} or {}
    for x,y in MUTANTS.get(f,[]):
        if t.count(x) == 1: sub(x,y)
        else: print("no place for a mutation:", x[:60].strip())
    if NEW and f=='feed.cuh':
        i=t.index('void count_part'); j=t.index('}\n',i); x=t[i:j]; y=x.replace('  finish_bulk_stores();','  if (emu::mutant != 3) finish_bulk_stores();')+'  if (emu::mutant == 3) finish_bulk_stores();\n'; t=t.replace(x,y)
    if f=='solve.cuh':
        assert t.count('is_faded = true;')==1
        t=t.replace('is_faded = true;','is_faded = true; ++emu::faded;')
    if f in ('scan_plan.cuh','scan.cuh','send.cuh','seams.cuh'):
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
    open(out+'src/'+f,'w').write(t)
open(out+'emu.cpp','w').write('''#include "machine.h"
#include "src/prefill.cu"
'''+('#define NEW 1\n' if NEW else '')+'''
extern "C" int solve_ctas = 2, scan_ctas = 5;
#define COUNTER(x) extern "C" long x() { const long y = emu::x; emu::x = 0; return y; }
COUNTER(starvations) COUNTER(ambiguous) COUNTER(faded) COUNTER(gave_up) COUNTER(dropped) COUNTER(dropped_twice) COUNTER(passes) COUNTER(bad)
extern "C" void set_mutant(int m) { emu::mutant = m; }
extern "C" void set_bulk(int mode, int most) { bulk_mode_now = mode; bulk_most_now = most; }
extern "C" void set_cut(int second, int third, int fourth, int longest) { Tuning::SECOND = second; Tuning::THIRD = third; Tuning::FOURTH = fourth; Tuning::LONG = longest; }
#ifdef NEW
extern "C" long scratch_bytes(long t, long n) { return count_scratch(t, n); }
#else
extern "C" long scratch_bytes(long t, long n) { return (t / 64 + n) * SLOT_BYTES + 16 + count_handed(t / 64 + n, t, n); }
#endif
extern "C" void prefill(void** p, float scale, int tokens, int seqs, int groups, int drops) { // most_whole
  Args args = {(const __nv_bfloat16*)p[0], (const __nv_bfloat16*)p[1], (const __nv_bfloat16*)p[2], (const float*)p[3],
    (const float*)p[4], (const __nv_bfloat16*)p[5], (const float*)p[6], (const __nv_bfloat16*)p[7], (const int64_t*)p[8],
    (__nv_bfloat16*)p[9], (float*)p[10], (uint8_t*)p[11], scale, tokens, seqs, tokens / 64 + seqs, groups, 0, solve_ctas, scan_ctas};
  args.most_split = seqs > SCAN_THREADS ? 0 : std::min(seqs, args.slots / (std::max(groups, 0) + 1));
  args.most_later = groups == 0 ? may_cut(tokens, seqs) : 0;
#ifdef NEW
  args.is_dropping = drops;
  if ((uintptr_t)p[11] % 128) abort();
  emu::drop_first = (const uint8_t*)p[11]; emu::drop_last = emu::drop_first + scratch_bytes(tokens, seqs); emu::drops.assign(scratch_bytes(tokens, seqs) / 128 + 1, 0);
#endif
  emu::v_first = (const uint8_t*)p[2]; emu::v_last = emu::v_first + (size_t)tokens * V_HEADS * DIM * 2;
  static_assert(sizeof(SolveCta) <= MEMORY_BYTES && sizeof(ScanMemory) <= MEMORY_BYTES);
  static std::vector<uint8_t> kept; const size_t size = scratch_bytes(tokens, seqs); // REUSE: solved once, of one input a process; the scan's orders alone
  const bool reuse = getenv("REUSE"); const auto add_solve = [&] { for (int x = 0; x < args.solve_ctas; ++x) emu::add_cta(SOLVE_THREADS, {unsigned(x), 0, 0}, false, [args] { solve_kernel(args); }); };
  if (tokens == 0) *taken_units(args) = 0;
  else if (reuse) { if (kept.empty()) { add_solve(); emu::run_all(); kept.assign((uint8_t*)p[11], (uint8_t*)p[11] + size); } else memcpy(p[11], kept.data(), size); }
  else add_solve();
  for (int x = 0; x < args.scan_ctas; ++x) emu::add_cta(SCAN_THREADS, {unsigned(x), 0, 0}, true, [args] { if (args.most_later > 0) scan_kernel<true>(args); else scan_kernel<false>(args); });
  emu::run_all();
}
''')
so=out+os.environ.get('SO','emu.so')
subprocess.run(['g++','-O2','-g1','-march=native','-ffp-contract=off','-fno-strict-aliasing','-std=c++17',*os.environ.get('DEFS','').split(),'-fPIC','-w','-I/usr/local/cuda-13.0/include','-I'+out+'shelf','-shared','-o',so,out+'emu.cpp'],check=True)
