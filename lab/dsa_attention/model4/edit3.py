import os
exec(open('clones/attn4-model/edit1.py').read().split("sub('plan.cuh',")[0])
s=open('merge.cuh').read()
a=s.index("// What each sender's sums count for the head that a thread merges.")
b=s.index("__device__ __forceinline__ void write_empty")
s=s[:a]+'''// By the helping warps: zeros for the sums of those who send none, so that merge() counts all.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void clear_received(Shared& shared, const Work& work) {
  constexpr int CHUNKS = sizeof(shared.received[0]) / CHUNK;  // of a sender
#pragma unroll
  for (int first = 0; first < CLUSTER * CHUNKS; first += HELPING) {
    const int chunk = first + threadIdx.x - COMPUTING;
    if (work.sends(chunk / CHUNKS)) continue;
    reinterpret_cast<uint4*>(shared.received)[chunk] = uint4{};
  }
}

// What a thread of merge() knows before all sums have landed: what each sender's count for its
// head, and where its first columns lie among a sender's.
template <int CLUSTER>
struct Share {
  float4 factors[(CLUSTER + 3) / 4];
  uint32_t place;
};

template <int CLUSTER, typename Shared>
__device__ __forceinline__ Share<CLUSTER> find_share(const Shared& shared) {
  const int head = threadIdx.x / 16;
  Share<CLUSTER> share;
#pragma unroll
  for (int i = 0; i < (CLUSTER + 3) / 4; ++i) {
    share.factors[i] = *reinterpret_cast<const float4*>(&shared.factors[head][4 * i]);
  }
  share.place = keep(Piece<CLUSTER>::place(head, threadIdx.x % 16 * 2) * sizeof(__half));
  return share;
}

// All senders' sums are loaded at once: a branch a sender would have each load wait for the sum of
// the one before. Says to the cluster that mine have landed.
template <int CLUSTER, typename Shared>
__device__ __forceinline__ void merge(const Shared& shared, const Args& args, int64_t token,
                                      int rank, const Share<CLUSTER>& share) {
  using Part = Piece<CLUSTER>;
  const int head = threadIdx.x / 16;
#pragma unroll
  for (int first = 0; first < Part::OWNED; first += 32) {
    const uint32_t place = share.place ^ first % Part::WIDTH * sizeof(__half);
    __half2 pairs[CLUSTER];
#pragma unroll
    for (int s = 0; s < CLUSTER; ++s) {
      const auto* part = reinterpret_cast<const uint8_t*>(&shared.received[s][first / Part::WIDTH]);
      pairs[s] = *reinterpret_cast<const __half2*>(part + place);
    }
    // Here, where it keeps all loads in front of all sums as well.
    if (first == 0) arrive_cluster();
    float2 sum = {};
#pragma unroll
    for (int s = 0; s < CLUSTER; ++s) {
      const float factor = reinterpret_cast<const float*>(share.factors)[s];
      const float2 sums = __half22float2(pairs[s]);
      sum.x += factor * sums.x;
      sum.y += factor * sums.y;
    }
    const int column = rank * Part::OWNED + first + threadIdx.x % 16 * 2;
    auto* to = args.output + (token * HEADS + head) * CKV + column;
    *reinterpret_cast<__nv_bfloat162*>(to) = __floats2bfloat162_rn(sum.x, sum.y);
  }
}

'''+s[b:]
open('merge.cuh','w').write(s)
sub('attend.cu',
('''    const Factors<CLUSTER> factors = load_factors<CLUSTER>(shared);
    wait_phase(&shared.sums_landed, 0);
    arrive_cluster();  // what I sent was read once all have received
    merge<CLUSTER>(shared, args, token, rank, work, factors);
    wait_cluster();
''','''    const Share<CLUSTER> share = find_share<CLUSTER>(shared);
    wait_phase(&shared.sums_landed, 0);
    merge<CLUSTER>(shared, args, token, rank, share);
    wait_cluster();  // what I sent was read once all have received
'''),
('''    wait_cluster();  // all barriers are there
    if (work.sends(rank)) send_stats''','''    clear_received<CLUSTER>(shared, work);
    wait_cluster();  // all barriers are there
    if (work.sends(rank)) send_stats'''),
)
