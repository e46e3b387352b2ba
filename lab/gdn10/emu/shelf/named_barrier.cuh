#pragma once
inline void sync_threads_of(int n, int t) { emu::barrier(n, t); }
