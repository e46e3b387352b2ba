#pragma once
template <int N> inline void take_registers() {}
template <int N> inline void give_registers() {}
