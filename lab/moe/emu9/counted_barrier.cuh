#pragma once
#include "emu.h"
inline void arrive_for_threads(int number, int n) { Group& g = named_group(number); if (++g.arrived == n) { g.arrived = 0; ++g.gen; } }
