#pragma once
inline void wait_for_launches_before() { for (int c = 0; c < (int)emu::ctas.size(); ++c) while (!emu::ctas[c].scans && emu::ctas[c].left > 0) emu::yield(); }
inline void allow_next_launch() { auto& c = *emu::all_fibers[emu::cur].cta; if (!c.scans && !c.allowed) c.allowed = true, --emu::allowing, emu::progress++; }
