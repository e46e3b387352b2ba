#include "machine.h"
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
