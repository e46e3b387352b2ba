#pragma once
inline float positive_or_nan(float x){ return x!=x?x:(x>0?x:0.0f); }
