#pragma once
#include "bulk_copy.cuh"
inline void finish_bulk_stores_before() { bulk_wait(1, false); }
