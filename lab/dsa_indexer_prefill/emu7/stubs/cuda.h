#pragma once
#include <cstdint>
struct alignas(64) CUtensorMap{ const uint8_t* base; uint64_t rows; uint32_t box; uint8_t pad[128-20-4]; };
