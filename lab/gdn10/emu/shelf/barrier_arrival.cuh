#pragma once
inline void arrive_threads_of(int number, int threads, bool arrives) {
  if (!arrives) return;
  emu::Bar& b = emu::bar(number);
  if (++b.arrived == threads) { b.arrived = 0; b.gen++; emu::progress++; }
}
