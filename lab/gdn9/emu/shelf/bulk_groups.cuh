#pragma once
inline void finish_bulk_stores_before() {}
