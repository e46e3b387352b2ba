#pragma once
template <int C> static inline void take_registers() {}
template <int C> static inline void give_registers() {}
