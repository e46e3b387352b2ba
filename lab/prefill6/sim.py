"""Cycles of the scan's chunk, one warp a scheduler, counted from the control codes: sim.py CUBIN [ISSUE_QUEUE]
Stall counts and scoreboards as the SASS has them; LDS 30, LDSM 33, STSM 40, S2UR/R2UR 25, SYNCS 40. Tensor core: 32 cycles a 64x64x16, 64 a 64x128x16;
a warp issues while fewer than QUEUE are unfinished; sums are seen 60 cycles after the last of a group; 30 behind WARPGROUP.ARRIVE."""
import re, subprocess, sys
T = 'main/.venv/lib/python3.11/site-packages/triton/backends/nvidia/bin/cuobjdump'
t = subprocess.run([T, '-sass', sys.argv[1]], capture_output=True, text=True).stdout
QUEUE = int(sys.argv[2]) if len(sys.argv) > 2 else 6
t = [x for x in t.split('Function : ') if 'scan_kernel' in x.split('\n')[0]][0]
ins, L = [], t.split('\n')
for i, l in enumerate(L):
    m = re.match(r'\s+/\*([0-9a-f]{4,5})\*/\s+(.*?);?\s+/\* 0x([0-9a-f]{16}) \*/', l)
    if m:
        c = int(re.search(r'0x([0-9a-f]{16})', L[i + 1]).group(1), 16) >> 41
        ins.append((m.group(2).rstrip(' ;'), c & 15, (c >> 5) & 7, (c >> 8) & 7, (c >> 11) & 63, int(m.group(1), 16)))
def lat(op):
    for k, v in (('LDSM', 33), ('LDS', 30), ('STSM', 40), ('MUFU', 25), ('S2', 25), ('R2UR', 25), ('SYNCS', 40), ('VOTE', 20), ('LDG', 500)):
        if op.startswith(k): return v
    return 20
h = [i for i, x in enumerate(ins) if 'HGMMA' in x[0]]
end = next(i for i in range(h[-1], len(ins)) if 'BRA' in ins[i][0] and int(re.search(r'0x([0-9a-f]+)', ins[i][0]).group(1), 16) < ins[h[0]][5])
start = next(i for i, x in enumerate(ins) if x[5] == int(re.search(r'0x([0-9a-f]+)', ins[end][0]).group(1), 16))
now, tp, groups, flight, sb, arrived = 0, 0, [], [], [0] * 6, 0
f2fp = 0
for lap in range(3):
    rows, t0, n, last = [], now, 0, now
    for op, st, wb, rb, mask, at in ins[start:end + 1]:
        core = re.sub(r'^@!?U?P\w+ ', '', op)
        now = max([now] + [sb[k] for k in range(6) if mask >> k & 1])
        if core.startswith('WARPGROUP.ARRIVE'): arrived = now + 30
        if core.startswith('F2FP'):
            now = max(now, f2fp); f2fp = now + 2
        if core.startswith('HGMMA'):
            now = max(now, arrived); arrived = 0
            flight = [x for x in flight if x > now]
            if len(flight) >= QUEUE: now = max(now, sorted(flight)[len(flight) - QUEUE])
            tp = max(tp, now + 10) + (64 if '64x128' in core else 32); flight.append(tp)
            if 'gsb0' in core: groups.append(tp + 60)
        m = re.match(r'WARPGROUP.DEPBAR.LE gsb0, 0x(\d)', core)
        if m and len(groups) > int(m.group(1)): now = max(now, groups[-1 - int(m.group(1))])
        if wb < 6: sb[wb] = max(sb[wb], now + lat(core))
        if rb < 6: sb[rb] = max(sb[rb], now + 12)
        now += max(st, 1); n += 1
        if ('HGMMA' in core and 'gsb0' in core) or m or 'SYNCS' in core or 'STSM' in core and ins[0] is None:
            rows.append(f"{at:05x} {core[:44]:44s} at {now - t0:5d}  (+{now - last}, {n} instructions, tensor core until {tp - t0})"); last = now; n = 0
    total = now - t0
print('\n'.join(rows)); print('cycles a chunk:', total, 'instructions', end + 1 - start)
