#pragma once
#include "emu.h"
inline void sync_threads_of(int number, int threads) { meet(named_group(number), threads, cur->tid.x % threads, 0); }
