#pragma once
inline void admit_bulk_reads() {}
