#pragma once
template <int C> void take_registers() {}
template <int C> void give_registers() {}
