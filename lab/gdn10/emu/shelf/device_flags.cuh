#pragma once
inline void count_release(int* c) { ++*c; emu::progress++; }
inline int load_acquire(const int* c) { return *c; }
