#pragma once
#include "emu.h"
inline void count_release(int* c) { ++*c; }
inline int load_acquire(const int* c) { return *c; }
