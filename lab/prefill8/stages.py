"""The way along a call's dependencies, from its end back to its begin: what each stage takes of the span. No torch, no GPU."""
import collections

FIELDS = ("begun", "there", "chained", "seam", "merged", "left")  # 1 to 6 of a unit's log


def read_units(log, began):
    """log[cta][number] = 8 integers -> units with us from `began`."""
    units = []
    for cta, rows in enumerate(log):
        for number, row in enumerate(rows):
            if row[6] <= 0:
                continue
            what, of = row[0], {name: (row[1 + i] - began) / 1e3 if row[1 + i] > 0 else None for i, name in enumerate(FIELDS)}
            units.append(of | {"cta": cta, "number": number, "kind": what % 16, "later": what // 16 % 16 - 1, "head": what // 256 % 16, "half": what // 4096 % 16,
                               "chunks": what // 2**16 % 2**16, "slot": what // 2**32 % 2**24, "next": what // 2**56 % 256 - 1})
    return units


def walk(units, cta_begins, end):
    """[(stage, from, to)] back from `end`; times next to each other, so that they add up to the span."""
    at = {(u["cta"], u["number"]): u for u in units}
    handing, states = {}, collections.defaultdict(list)
    for u in units:
        if u["kind"] in (2, 3):
            handing.setdefault((u["next"], u["head"]), []).append(u)
            states[u["kind"], u["head"]].append(u)
        if u["kind"] == 4:
            states[4, u["head"]].append(u)
    path, now, u = [], end, max(units, key=lambda u: u["left"])

    def add(stage, since):
        nonlocal now
        if since < now:
            path.append((stage, since, now))
            now = since

    def chain(u):
        """Back along the unit's chain from `now` to its begin."""
        name = {2: "chain", 3: "chain of a later segment", 4: "chain of a transition"}[u["kind"]]
        add(name, u["there"] if u["there"] is not None else u["begun"])
        add("wait for the first solved chunk (or the unit's first)", u["begun"])

    add("scan's end behind its last unit", u["left"])
    for _ in range(4000):
        if u["kind"] in (0, 1):  # outputs of a chunk
            deps = []
            for kind in (2,) if u["kind"] == 0 else (3, 4):
                for s in states[kind, u["head"]]:
                    nth = u["slot"] - s["slot"] + 1
                    if 0 < nth <= s["chunks"] and s["there"] is not None and s["chained"] is not None:
                        deps.append((s["there"] + (s["chained"] - s["there"]) * nth / s["chunks"], "outputs behind their states", s))
            if u["kind"] == 1:
                deps += [(s["left"], "later outputs behind the state in front", s) for s in handing.get((u["later"], u["head"]), ())]
            time, name, dep = max(deps, key=lambda d: d[0], default=(-1, "", None))
            if dep is not None and u["begun"] < time < now:
                add(name, time)
                u = dep
                if name.startswith("outputs"):
                    chain(u)
                else:
                    continue  # the unit from its end
            else:
                add("outputs, one unit after the other" if u["kind"] == 0 else "later outputs, one unit after the other", u["begun"])
        else:
            if u["merged"] is not None and u["seam"] is not None:
                add("seam: handed on", u["merged"])
                add("seam: merged", u["seam"])
                deps = [(s["left"], s) for s in handing.get((u["later"], u["head"]), ()) if s["left"] is not None]
                deps += [(s["left"], s) for s in states[4, u["head"]] if s["later"] == u["later"]]
                time, dep = max(deps, key=lambda d: d[0], default=(-1, None))
                if dep is not None and u["chained"] < time < now:
                    add("seam: from handed on to there", time)
                    u = dep
                    continue
                add("seam: its round, behind the own chain", u["chained"])
            elif u["chained"] is not None:
                add("state or transition stored", u["chained"])
            chain(u)
        before = at.get((u["cta"], u["number"] - 1))
        if before is None:
            add("CTA's start: order, segments, first unit", cta_begins[u["cta"]])
            add("launch; or the SM is taken by solve_kernel", 0.0)
            return path
        add("between two units of a CTA", before["left"])
        u = before
    return path


def table(path, end):
    """Lines: stages in the order of time, how often, us, share of the span."""
    sums, counts, firsts = collections.Counter(), collections.Counter(), {}
    for stage, since, until in reversed(path):
        sums[stage] += until - since
        counts[stage] += 1
        firsts.setdefault(stage, since)
    lines = [f"    {sums[x]:7.2f} us {100 * sums[x] / end:5.1f} %  {counts[x]:3d} x  {x}, from {firsts[x]:.1f}" for x in sorted(firsts, key=firsts.get)]
    return lines + [f"    {sum(sums.values()):7.2f} us {100 * sum(sums.values()) / end:5.1f} %  of {end:.2f} us accounted for"]
