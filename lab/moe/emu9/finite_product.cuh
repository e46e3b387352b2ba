#pragma once
#include "emu.h"
inline float multiply_finite(float a, float b) { float x = a * b; if (x != x) return x; return x > 3.4028234663852886e38f ? 3.4028234663852886e38f : x < -3.4028234663852886e38f ? -3.4028234663852886e38f : x; }
