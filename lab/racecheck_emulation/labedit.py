D='/tmp/scanwaits/lab/'
def sub(f,*pairs):
    t=open(D+f).read()
    for a,b in pairs:
        assert t.count(a)==1,(f,a,t.count(a)); t=t.replace(a,b)
    open(D+f,'w').write(t)
sub('machine.h',
('inline void (*dumping)();','''inline void (*dumping)();
// Copies that land later (DELAYS: turns at most), of CTAs of STALLS_AT threads.
struct Event { long at; int thread; bool copies; std::function<void()> land; };
inline std::vector<Event> events; inline long now; inline int delays; inline unsigned chance = 1;
inline int draw(int n) { chance = chance * 1664525u + 1013904223u; return (chance >> 8) % n; }'''),
('''const bool stalls = getenv("STALLS") && threads ==''','''const auto number = [](const char* name, int other) { return getenv(name) ? atoi(getenv(name)) : other; };
  const bool chosen = threads == number("STALLS_AT", 640); const int stall_most = number("STALL_MOST", 400), stall_every = number("STALL_EVERY", 1500);
  // STARVE: one warp (STARVE=1) or one thread (2) stands still until nothing else gets on, then goes on for a while.
  const int starves = chosen ? number("STARVE", 0) : 0; int starved = -1, still = 0, rest = 0; unsigned pick = state ^ 0x5bd1e995u;
  delays = chosen ? number("DELAYS", 0) : 0; chance = state | 1; events.clear(); now = 0;
  const bool stalls = getenv("STALLS") && threads =='''),
('''if ((state >> 8) % 1500 == 0) s = 1 + (state >> 16) % 400;''','''if ((state >> 8) % stall_every == 0) s = 1 + (state >> 8) / stall_every % stall_most;'''),
('''    if (seed) for (int i''','''    ++now;
    for (size_t i = 0; i < events.size();) if (events[i].at <= now) { auto e = events[i]; events.erase(events.begin() + i); cur = e.thread; e.land(); progress++; i = 0; } else ++i;
    if (starves) {
      if (starved >= 0 && still > 3 && events.empty()) { starved = -1; pick = pick * 1664525u + 1013904223u; rest = (pick >> 8) % 4 ? (pick >> 10) % 8 : (pick >> 10) % 300; starvations++; }
      else if (starved < 0 && rest-- <= 0) { pick = pick * 1664525u + 1013904223u; starved = starves == 1 ? (pick >> 8) % (threads / 32) * 32 : (pick >> 8) % threads; still = 0; }
      any_stalled |= starved >= 0;
    }
    const auto is_starved = [&](int t) { return starved >= 0 && (starves == 1 ? t / 32 == starved / 32 : t == starved); };
    if (seed) for (int i'''),
('''if (stalls && stall[cur / 32] > 0) continue;''','''if ((stalls && stall[cur / 32] > 0) || is_starved(cur)) continue;'''),
('''    static int stuck;''','''    still = progress == before ? still + 1 : 0; any_stalled |= !events.empty();
    static int stuck;'''),
('''if (!left) { rc_off(); break; }''','''if (!left) { for (auto& e : events) if (e.copies) { printf("A COPY LANDS IN A CTA THAT HAS ENDED\\n"); fflush(stdout); abort(); } rc_off(); break; }'''),
('inline long faded;','inline long faded, starvations;'))
sub('shelf/async_copy.cuh',
('inline void copy_chunk_or_clear(void* s, const void* g, bool v) { if (((uintptr_t)g & 15)) abort();','''inline long landed[2048];
inline void copy_chunk_or_clear(void* s, const void* g, bool v) { if (((uintptr_t)g & 15)) abort();
  if (emu::delays) { const long at = emu::now + 1 + emu::draw(emu::delays); landed[emu::cur] = std::max(at, landed[emu::cur] > emu::now + 4 * emu::delays ? 0 : landed[emu::cur]); emu::events.push_back({at, emu::cur, true, [=] { if (v) memcpy(s, g, 16); else memset(s, 0, 16); }}); return; }'''),
('template <int N> inline void wait_copies() {}','template <int N> inline void wait_copies() { for (bool any = emu::delays > 0; any;) { any = false; for (auto& e : emu::events) any |= e.copies && e.thread == emu::cur; if (any) emu::yield(); } }'),
('struct Mbar { int32_t pending, init, tx; int32_t phase; void* self; };','struct Mbar { int32_t pending, init, tx; int32_t phase; void* self; int32_t count; };'),
('m.phase ^= 1;','m.phase ^= 1; m.count++;'),
('mbar(b) = {(int)n, (int)n, 0, 0, b};','mbar(b) = {(int)n, (int)n, 0, 0, b, 0};'),
('inline void arrive_with_copies(uint64_t* b) { arrive(b); }','inline void arrive_with_copies(uint64_t* b) { if (emu::delays) emu::events.push_back({std::max(landed[emu::cur], emu::now) + 1, emu::cur, true, [=] { arrive(b); }}); else arrive(b); }'),
('inline void dump_bars()','''// A wait whose phase is known: the barrier must be in it or in the next one whenever it is looked at.
inline void wait_exact(uint64_t* b, int phase) { emu::waits[emu::cur] = {b, phase % 2}; for (;;) { const Mbar& m = mbar(b);
    if (m.count != phase && m.count != phase + 1) { static int said; emu::ambiguous++; if (said++ < 3) printf("AMBIGUOUS thread %d barrier at %ld: waits for the end of phase %d, %d have ended\\n", emu::cur, (long)((uint8_t*)b - memory), phase, m.count); fflush(stdout); }
    if (m.phase != phase % 2) break; emu::yield(); } emu::waits[emu::cur] = {nullptr, 0}; }
inline void dump_bars()'''))
sub('machine.h',('inline long faded, starvations;','inline long faded, starvations, ambiguous;'))
sub('shelf/bulk_copy.cuh',
('''memcpy(s, g, n); Mbar& m = mbar(b); rc_release(b, m.phase); m.tx -= n; settle(m); }''','''const auto land = [=] { memcpy(s, g, n); Mbar& m = mbar(b); rc_release(b, m.phase); m.tx -= n; settle(m); };
  if (emu::delays) emu::events.push_back({emu::now + 1 + emu::draw(emu::delays), emu::cur, true, land}); else land(); }'''))
# the checker
t=open(D+'make.py').read()
a="    if f=='plan.cuh' and os.environ.get('CUT'):"
assert t.count(a)==1
t=t.replace(a,'''    if os.environ.get('EXACT') and f in ('scan_plan.cuh','scan.cuh','send.cuh','seams.cuh'):
        W='wait_cta_phase('
        changes={'scan_plan.cuh':[('  int stage, parity;','  int stage, parity, round;'),(': stage(round',': round(round), stage(round'),('    ++stage;','    ++stage, ++round;'),('    const int at = stage + rounds;','    round += rounds; const int at = stage + rounds;'),
            (W+'&shared.known[place], (number - 1) / LISTED % 2 ^ 1)','wait_exact(&shared.known[place], (number - 1) / LISTED - 1)'),(W+'&shared.listed[place], (number - 1) / LISTED % 2)','wait_exact(&shared.listed[place], (number - 1) / LISTED)')],
          'scan.cuh':[(W+'&shared.full[turn.stage], turn.parity)','wait_exact(&shared.full[turn.stage], turn.round / Tuning::STAGES)'),
            (W+'&shared.left, parity)','wait_exact(&shared.left, emu::nth[emu::cur][0]++)'),(W+'&shared.left[turn.stage], parities >> turn.stage & 1)','wait_exact(&shared.left[turn.stage], emu::nth[emu::cur][turn.stage]++)')],
          'seams.cuh':[(W+'&shared.full[turn.stage], turn.parity)','wait_exact(&shared.full[turn.stage], turn.round / Tuning::STAGES)')],
          'send.cuh':[(W+'&barriers[round % Tuning::STAGES], (round / Tuning::STAGES - 1) % 2)','wait_exact(&barriers[round % Tuning::STAGES], round / Tuning::STAGES - 1)'),
            (W+'&shared.used[stage], parity)','wait_exact(&shared.used[stage], round / Tuning::STAGES - 1)'),(W+'&shared.done[stage], parity)','wait_exact(&shared.done[stage], round / Tuning::STAGES - 1)'),
            (W+'&shared.done[of % Tuning::STAGES], of / Tuning::STAGES % 2)','wait_exact(&shared.done[of % Tuning::STAGES], of / Tuning::STAGES)'),(W+'&shared.done[last % Tuning::STAGES], last / Tuning::STAGES % 2)','wait_exact(&shared.done[last % Tuning::STAGES], last / Tuning::STAGES)')]}
        for x,y in changes[f]: t=t.replace(x,y)
        assert W not in t,(f,t[t.index(W)-200:t.index(W)+100])
'''+a)
t=t.replace('extern "C" long faded()','extern "C" long starvations() { const long x = emu::starvations; emu::starvations = 0; return x; }\nextern "C" long ambiguous() { const long x = emu::ambiguous; emu::ambiguous = 0; return x; }\nextern "C" long faded()')
t=t.replace("emu::run_cta(SCAN_THREADS,","memset(emu::nth, 0, sizeof(emu::nth)); emu::run_cta(SCAN_THREADS,")
open(D+'make.py','w').write(t)
sub('machine.h',('inline long faded, starvations, ambiguous;','inline long faded, starvations, ambiguous; inline int nth[2048][4];'))
t=open(D+'fast.py').read()
t=t.replace("        libc=ctypes.CDLL(None)\n","")
t=t.replace("""        os.environ.pop('ORDER',None); os.environ.pop('STALLS',None)
        if o!='0': os.environ['ORDER']=o.rstrip('s')
        if o.endswith('s'): os.environ['STALLS']='1'
""","""        # 0 fixed; 7 an order; 7s with stalls; 7w, 7t a warp, a thread starved; 7v violent stalls; a d behind: copies land later
        kind=o.lstrip('0123456789')
        for n in ('ORDER','STALLS','STARVE','STALL_MOST','STALL_EVERY','DELAYS'): os.environ.pop(n,None)
        if o!='0': os.environ['ORDER']=o[:len(o)-len(kind)]
        if 's' in kind or 'v' in kind: os.environ['STALLS']='1'
        if 'v' in kind: os.environ['STALL_MOST']='6000'; os.environ['STALL_EVERY']='4000'
        if 'w' in kind: os.environ['STARVE']='1'
        if 't' in kind: os.environ['STARVE']='2'
        if 'd' in kind: os.environ['DELAYS']='120'
""")
t=t.replace("L.faded()/256,","L.faded()/256,'starved',L.starvations(),'ambiguous',L.ambiguous(),")
t=t.replace(" 'flip':","""
 'cutlong':(1,3,lambda: batch_of([1500],4),0),
 'cuttwo':(1,3,lambda: batch_of([1100,0,330],5),0),
 'halves':(1,2,lambda: batch_of([300,10,500,0,64,200,130,700,1,90],8),2),
 'flip':""")
t=t.replace("if __name__=='__main__':","for n in ('starvations','ambiguous'): getattr(L,n).restype=ctypes.c_long\nif __name__=='__main__':")
open(D+'fast.py','w').write(t)
