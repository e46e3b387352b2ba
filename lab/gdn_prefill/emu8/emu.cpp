#include "machine.h"
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
