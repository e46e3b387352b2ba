#pragma once
#include "read_once.cuh"
inline void prefetch_box_once(const CUtensorMap*, int, int) {}
