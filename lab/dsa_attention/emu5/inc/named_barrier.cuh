#pragma once
#include "emu.h"
static inline void sync_threads_of(int id, int n) { named_(id, n); }
