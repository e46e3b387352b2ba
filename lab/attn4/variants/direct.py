"""Partial sums sent from registers, 16 bytes a lane (st.async), instead of by bulk copies: in the room's folder."""
text = open("../common/cluster.cuh").read()
text += '''
__device__ __forceinline__ void send(uint32_t address, const uint32_t (&words)[4],
                                     uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, "
      "[%5];" ::"r"(address),
      "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(barrier)
      : "memory");
}
'''
open("../common/cluster.cuh", "w").write(text)
text = open("merge.cuh").read()
start = text.index("  Part& mine = reinterpret_cast<Part*>(shared.query)[piece];")
end = text.index("// What the sums of each sender count, and lse")
text = text[:start] + '''  const int owner = piece / Part::AN_OWNER;
  const uint32_t to = address_in(
      shared_address(&shared.received[rank][piece % Part::AN_OWNER]) + lane * 16, owner);
  const uint32_t barrier = address_in(shared_address(&shared.sums_landed), owner);
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int group = 0; group < GROUPS; group += 4) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float(&sums)[4] = acc[FIRST_GROUP + group + j];
        words[j] = as_word(__floats2half2_rn(sums[2 * i], sums[2 * i + 1]));
      }
      send(to + (i * GROUPS + group) * 128, words, barrier);
    }
  }
}

''' + text[end:]
old = "keep(Piece<CLUSTER>::place(head, threadIdx.x % 16 * 2) * sizeof(__half))"
assert old in text
text = text.replace(old, '''keep((head / 8 * (Piece<CLUSTER>::WIDTH / 32) * 32 + head % 8 * 4 + threadIdx.x % 4) * 16 +
                     threadIdx.x % 16 / 4 * 4)''')
old = "share.place ^ first % Part::WIDTH * sizeof(__half)"
assert old in text
text = text.replace(old, "share.place + first % Part::WIDTH / 32 * 512")
open("merge.cuh", "w").write(text)
