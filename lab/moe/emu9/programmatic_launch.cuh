#pragma once
inline void wait_for_launches_before() {}
inline void allow_next_launch() {}
