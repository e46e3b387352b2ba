#pragma once
template <int THREADS> static inline void sync_group(int id) { named_(id, THREADS); }
