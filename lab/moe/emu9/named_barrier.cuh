#pragma once
#include "emu.h"
inline void sync_threads_of(int number, int threads) { meet(named_group(number), threads, cur->tid.x % threads, 0); if (rand() % 4 == 0) for (int i = rand() % 300; i-- > 0;) yield(); }
