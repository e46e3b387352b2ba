#pragma once
constexpr int LINE_BYTES = 128;
inline void drop_line(const void* p) {
  const auto* a = (const uint8_t*)p;
  if ((uintptr_t)p % 128 || a < emu::drop_first || a + 128 > emu::drop_last) { if (emu::mutant) { emu::bad++; return; } printf("DROP OUTSIDE OF SCRATCH\n"); fflush(stdout); abort(); }
  memset((void*)p, 0xff, 128); emu::dropped++;
  uint8_t& n = emu::drops[(a - emu::drop_first) / 128]; emu::dropped_twice += n > 0; n++;
}
