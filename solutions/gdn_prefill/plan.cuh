// Sizes, arguments, scratch and the division of work of prefill.cu.
//
// Everything of prefill.cu is in an unnamed namespace: two builds that are loaded into one process
// would share the statics of a named one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "cache_lines.cuh"

namespace {

constexpr int QK_HEADS = 4, V_HEADS = 8, SERVED = V_HEADS / QK_HEADS, DIM = 128;
constexpr int CHUNK = 64;                  // tokens
constexpr int TILE_BYTES = CHUNK * 128;    // 64 rows of 64 fp16, chunks permuted: warpgroup.cuh
constexpr int BLOCK = 16, BLOCKS = CHUNK / BLOCK;
constexpr int VALUES = 64;                 // columns of V of a warpgroup: the rows of a wgmma
constexpr int ORDERED = 384;               // sequences, at most; more are taken slot by slot
constexpr uint32_t FULL = 0xffffffffu;
constexpr double LOG2_E = 1.4426950408889634;

// Chosen by sizes and by counting: docs/kernels/gdn_prefill.md.
struct Tuning {
  static constexpr int SOLVE_TEAMS = 2;      // of a CTA, one an SM: 110 KiB each
  static constexpr int SOLVE_REGISTERS = 104, FEED_REGISTERS = 64;  // of 96
  static constexpr int SCANNED = 16;         // SMs without solve_kernel: the longest scan's
  static constexpr int SCANNED_OF_MANY = 32;  // of more than FEW, from three rounds of tasks on
  static constexpr int64_t KEPT_BYTES = 45 << 20;  // scratch of which nothing is dropped
  static constexpr int STAGES = 3;           // of the scan: two chunks on their way
  static constexpr int SCAN_REGISTERS = 216, SENDER_REGISTERS = 72;  // of 168
  static constexpr int FEW = 8, LONG = 8;    // may_hand(): sequences at most, chunks at least
  // Chunks from which on the longest sequence of few has a second, third, fourth segment.
  static constexpr int SECOND = 20, THIRD = 48, FOURTH = 160;
  static constexpr int AHEAD = 3, A_ROUND = 14;  // count_ahead(): chunks
  static constexpr int CUT_AMONG = 5;        // may_cut(): sequences at most
  static constexpr int TOKENS = 64;          // that walk_kernel holds at once
  static constexpr int WALK_WARPS = 4;       // 8 columns of V a CTA: 128 CTAs a sequence
};
static_assert(DIM == 2 * 64, "keys lie in two tiles of 64 columns");
static_assert(Tuning::SOLVE_TEAMS == 2, "solve_tasks() numbers the tasks of two");
static_assert(BLOCK == 16 && BLOCKS == 4, "invert_corner() and merge_corners() are written out");

struct Args {
  const __nv_bfloat16* q;       // [T, 4, 128]
  const __nv_bfloat16* k;       // [T, 4, 128]
  const __nv_bfloat16* v;       // [T, 8, 128]
  const float* state;           // [N, 8, 128, 128], k-last, or nullptr: zeros
  const float* a_log;           // [8]
  const __nv_bfloat16* a;       // [T, 8]
  const float* dt_bias;         // [8]
  const __nv_bfloat16* b;       // [T, 8]
  const int64_t* cu_seqlens;    // [N + 1]
  __nv_bfloat16* output;        // [T, 8, 128]
  float* new_state;             // [N, 8, 128, 128]
  // [slots, 4] Operands, [slots, 8] Solved, [slots, 4] parts, how many units are taken; of few
  // sequences [slots, 8, 2] Handed, [slots, 8] counts of them; where they may be cut, another
  // [slots, 8, 2] Handed, [MOST_LATER, 8] Seam and counts
  uint8_t* scratch;
  float scale;
  int tokens, num_seqs, slots;
  int most_whole, most_split;  // rank_sequences()
  int solve_ctas, scan_ctas;
  int most_later;    // may_cut()
  bool is_dropping;  // whole units' scratch is more than the L2 keeps: drop_round()
};

// What solve_kernel leaves of a chunk and q/k head: rows are tokens, columns keys; fp16. Of every
// 16 keys the even pairs come first, then the odd ones; in `writes` as well.
struct Operands {
  uint8_t keys[2][TILE_BYTES], queries[2][TILE_BYTES];
};

// And of a chunk and v head: rows are tokens j.
struct Solved {
  uint8_t writes[2][TILE_BYTES];  // [j][key] fp16
  uint8_t reads[TILE_BYTES];      // [j][token] fp16
  float carry[CHUNK];             // decay from the start of the chunk up to the token
};
// What the scan of few sequences leaves of a chunk and 64 columns of V for whoever finds outputs:
// the state in front of it and the residual as first operands, a thread 16 bytes a step.
struct Handed {
  uint4 state[DIM / 16][128], residual[CHUNK / 16][128];
};
static_assert(sizeof(Operands) % 16 == 0, "bulk copies");
static_assert(sizeof(Solved) % LINE_BYTES == 0 && sizeof(Operands) % LINE_BYTES == 0,
              "what is dropped has its lines alone");
constexpr int64_t SLOT_BYTES =
    QK_HEADS * (sizeof(Operands) + sizeof(int)) + V_HEADS * sizeof(Solved);
constexpr int64_t HANDED_BYTES = V_HEADS * DIM / VALUES * sizeof(Handed);  // of a slot

// Between a segment and the one in front of it, of a v head. The thread of a fragment of sums has
// 16 bytes a step; tiles are a second operand in rows: rows are rows of S, columns keys.
struct Seam {
  float4 begin[DIM / VALUES][DIM / 8][128];                // the state in front of the segment
  uint8_t transition[DIM / VALUES][2][2][TILE_BYTES];      // of the segment; high, low bf16
};
// How many halves of it are there.
struct SeamCounts {
  int begin, transition;
};
constexpr int MOST_LATER = 3;  // segments with another one in front

// Sequences whose chain of chunks is long, few or the longest of more: other SMs than those of their
// states find outputs.
__host__ __device__ __forceinline__ bool are_few(int64_t num_seqs) {
  return num_seqs <= Tuning::FEW;
}

__host__ __device__ __forceinline__ bool may_hand(int64_t tokens, int64_t num_seqs) {
  if (!are_few(num_seqs)) return num_seqs <= ORDERED;
  return tokens >= num_seqs * Tuning::LONG * CHUNK;
}

// Whether units of half of the columns hand on what outputs need.
__host__ __device__ __forceinline__ bool is_handing(const Args& args) {
  return (args.most_whole == 0 || !are_few(args.num_seqs)) &&
         may_hand(args.tokens, args.num_seqs);
}

// Segments behind the first one that the longest of few sequences may be cut into: the chains of
// more, next to those of others, wait for the L2.
__host__ __device__ __forceinline__ int may_cut(int64_t tokens, int64_t num_seqs) {
  if (!may_hand(tokens, num_seqs) || tokens <= (Tuning::SECOND - 1) * CHUNK) return 0;
  if (num_seqs > Tuning::CUT_AMONG) return 0;
  const int later = MOST_LATER + 1 - static_cast<int>(num_seqs);
  return later > 1 ? later : 1;
}

// Parts of scratch, in bytes from its begin: Args::scratch. Those of few sequences lie behind all
// the rest, at lines of the L2.
__host__ __device__ __forceinline__ int64_t align_line(int64_t bytes) {
  return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

__host__ __device__ __forceinline__ int64_t handed_offset(int64_t slots) {
  return align_line(slots * SLOT_BYTES + sizeof(int));
}

__host__ __device__ __forceinline__ int64_t halves_offset(int64_t slots) {
  return handed_offset(slots) + slots * HANDED_BYTES;
}

__host__ __device__ __forceinline__ int64_t transitions_offset(int64_t slots) {
  return align_line(halves_offset(slots) + slots * V_HEADS * sizeof(int));
}

__host__ __device__ __forceinline__ int64_t seams_offset(int64_t slots) {
  return transitions_offset(slots) + slots * HANDED_BYTES;
}

// Slots of chunks: first_slot().
inline int64_t count_slots(int64_t tokens, int64_t num_seqs) {
  return tokens / CHUNK + num_seqs;
}

// Bytes of scratch.
inline int64_t count_scratch(int64_t tokens, int64_t num_seqs) {
  const int64_t slots = count_slots(tokens, num_seqs);
  if (!may_hand(tokens, num_seqs)) return handed_offset(slots);
  if (may_cut(tokens, num_seqs) == 0) return transitions_offset(slots);
  return seams_offset(slots) + MOST_LATER * V_HEADS * int64_t{sizeof(Seam) + sizeof(SeamCounts)};
}

// Tokens [start, stop) of a sequence, within the tensors whatever cu_seqlens holds.
struct Range {
  int start, stop;
  __device__ int chunks() const { return (stop - start + CHUNK - 1) / CHUNK; }
};

__device__ __forceinline__ Range load_range(const Args& args, int seq) {
  const int64_t most = args.tokens;
  const int64_t start = min(max(__ldg(args.cu_seqlens + seq), int64_t{0}), most);
  const int64_t stop = max(min(__ldg(args.cu_seqlens + seq + 1), most), start);
  return {static_cast<int>(start), static_cast<int>(stop)};
}

// Where the chunks of a sequence lie in scratch: floor(start / 64) + seq and on. No two sequences
// share a slot, since floor(x + y) + 1 >= floor(x) + ceil(y), and no sum over lengths is needed.
// All slots are below floor(T / 64) + N.
__device__ __forceinline__ int first_slot(const Range& range, int seq) {
  return range.start / CHUNK + seq;
}

__device__ __forceinline__ Operands* operands_of(const Args& args, int slot, int qk_head) {
  return reinterpret_cast<Operands*>(args.scratch) + (int64_t{slot} * QK_HEADS + qk_head);
}

__device__ __forceinline__ Solved* solved_of(const Args& args, int slot, int v_head) {
  uint8_t* first = args.scratch + int64_t{args.slots} * (QK_HEADS * sizeof(Operands));
  return reinterpret_cast<Solved*>(first) + (int64_t{slot} * V_HEADS + v_head);
}

// Of 64 columns from 64 half on.
__device__ __forceinline__ Handed* handed_of(const Args& args, int slot, int v_head, int half) {
  uint8_t* first = args.scratch + handed_offset(args.slots);
  return reinterpret_cast<Handed*>(first) + ((int64_t{slot} * V_HEADS + v_head) * 2 + half);
}

// The same of the transition of a later segment, whose columns are rows of the state in front.
__device__ __forceinline__ Handed* transition_of(const Args& args, int slot, int v_head, int half) {
  uint8_t* first = args.scratch + transitions_offset(args.slots);
  return reinterpret_cast<Handed*>(first) + ((int64_t{slot} * V_HEADS + v_head) * 2 + half);
}

__device__ __forceinline__ Seam* seam_of(const Args& args, int later, int v_head) {
  return reinterpret_cast<Seam*>(args.scratch + seams_offset(args.slots)) +
         (later * V_HEADS + v_head);
}

__device__ __forceinline__ SeamCounts* seam_counts_of(const Args& args, int later, int v_head) {
  return reinterpret_cast<SeamCounts*>(seam_of(args, MOST_LATER, 0)) + (later * V_HEADS + v_head);
}

// How many halves of a chunk have been handed on.
__device__ __forceinline__ int* halves_of(const Args& args, int slot, int v_head) {
  uint8_t* first = args.scratch + halves_offset(args.slots);
  return reinterpret_cast<int*>(first) + (int64_t{slot} * V_HEADS + v_head);
}

__device__ __forceinline__ uint32_t bits_of(const __half2& pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ __forceinline__ uint32_t pack_f16(float x, float y) {
  return bits_of(__floats2half2_rn(x, y));
}

__device__ __forceinline__ float2 widen_f16(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

// Two neighbouring bf16 as fp32.
__device__ __forceinline__ float2 widen_bf16(uint32_t pair) {
  return {__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)};
}

// Zeros for rows [first, stop) of the output, `width` columns from `column` on, by `threads`.
__device__ __forceinline__ void clear_rows(const Args& args, int first, int stop, int column,
                                           int width, int thread, int threads) {
  const int words = width / 8;
  for (int64_t at = thread; at < int64_t{stop - first} * words; at += threads) {
    const int64_t offset = (first + at / words) * (V_HEADS * DIM) + column + at % words * 8;
    *reinterpret_cast<uint4*>(args.output + offset) = uint4{0, 0, 0, 0};
  }
}

}  // namespace
