#pragma once
inline float exp2_approx(float x) { return exp2f(x); }
