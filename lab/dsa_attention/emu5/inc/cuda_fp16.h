#pragma once
#include "emu.h"
struct __half { uint16_t v; };
struct alignas(4) __half2 { uint16_t x, y; };
static inline uint16_t to_fp16(float f) { _Float16 h = f; uint16_t u; memcpy(&u, &h, 2); return u; }
static inline float from_fp16(uint16_t u) { _Float16 h; memcpy(&h, &u, 2); return h; }
static inline __half2 __floats2half2_rn(float a, float b) { return {to_fp16(a), to_fp16(b)}; }
static inline float2 __half22float2(__half2 p) { return {from_fp16(p.x), from_fp16(p.y)}; }
