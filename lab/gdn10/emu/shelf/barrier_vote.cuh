#pragma once
inline bool any_of_threads(int n, int t, bool says) {
  emu::Bar& b = emu::bar(n); const int g = b.gen;
  b.any[g % 2] |= says;
  emu::barrier(n, t);
  return b.any[g % 2];
}
