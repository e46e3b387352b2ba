"""gdn_prefill's native route by clock stamps and by knock-outs (patch.py). In a checkout's root:
lab.py build VARIANT FOLDER | run SECONDS FOLDER | show FILE.npz   (run.sh builds all, then runs; show needs no GPU)"""
import math
import os
import re
import statistics
import sys
import time
from pathlib import Path

import numpy as np

from patch import (CHUNK, CTA_WORDS, FEED, FEED_ORDER, KINDS, KNOCKS, PLACES, RIGHT, ROUNDS, SCAN_WARPS, SECOND_PASS, SENDER, SENDER_OUTPUT, SENDER_STATE, SENDER_STATES, SENDER_UNIT, SENT, SIZES, SMS, SOLVE_WARPS, STATE, STORING,
                   TASK_PLACES, TASKS, TEAM, TEAM_END, UNIT, UNIT_ORDER, UNITS, VARIANTS, WHAT, patch)  # fmt: skip

START = time.monotonic()
CASES = ((8192, 57), (8192, 20), (5709, 2), (2107, 1), (134, 1))
KNOCKED = ((8192, 57), (8192, 20), (5709, 2))
STAMPED_CALLS, CALLS = 8, 13
SHAPES = {"tasks": (SMS, SOLVE_WARPS, TASKS, TASK_PLACES), "units": (SMS, SCAN_WARPS, UNITS, PLACES), "rounds": (SMS, SCAN_WARPS, ROUNDS, PLACES), "ctas": (2, SMS, CTA_WORDS)}

# Stages of the page's table, by places of TEAM; cycles counted there.
COUNTED = (("wait: rows", (1,), 0), ("rows to fp16, fence, met", (2, 3, 4), 647), ("K K^T or Q K^T", (5,), 431), ("wait: place of below / of queries", (6,), 0), ("products stored, corners, fence, met", (7, 9, 10, 11), 957),
           ("wait: gates", (8,), 0), ("merge, scores' product, met", (12, 13, 14), 1422), ("reads stored, told", (15, 16), 730), ("keys' products, writes stored, told", (17, 18, 19, 20, 21), 1039),
           ("met: done", (22,), 0), ("wait: reads' place free", (23,), 0))  # fmt: skip


def say(text=""):
    print(text, flush=True)


# ---- reading stamps: pure numpy -------------------------------------------------------------------
class Call:
    """One call's stamps, in us from the first CTA's begin; NaN where there is none."""

    def __init__(self, tasks, units, rounds, ctas):
        self.ctas = ctas.astype(np.uint64).reshape(SHAPES["ctas"])
        begun = self.ctas[..., 0] > 0
        ns = (self.ctas[..., 2].astype(np.int64) - self.ctas[..., 0].astype(np.int64))[begun]
        clocks = (self.ctas[..., 3].astype(np.int64) - self.ctas[..., 1].astype(np.int64))[begun]
        self.ghz = clocks.sum() / max(ns.sum(), 1)
        self.zero = int(self.ctas[..., 0][begun].min())
        self.begun = begun
        ns_of = lambda word: np.where(begun & (self.ctas[..., word] > 0), (self.ctas[..., word].astype(np.int64) - self.zero) / 1e3, np.nan)
        self.begin, self.end = ns_of(0), ns_of(2)  # [kernel, cta]
        self.ordered = self.begin + np.where(self.ctas[..., 5] > 0, (self.ctas[..., 5].astype(np.int64) - self.ctas[..., 1].astype(np.int64)) / self.ghz / 1e3, np.nan)
        self.sm = self.ctas[..., 4].astype(int) - 1
        self.last = float(np.nanmax(self.end))
        self.what = units.reshape(SHAPES["units"])[..., WHAT].astype(np.int64)
        self.second_passes = int((tasks.reshape(SHAPES["tasks"])[..., SECOND_PASS] > 0).sum())
        self.tasks = self.times(tasks, "tasks", 0)
        self.units = self.times(units, "units", 1)
        self.rounds = None if rounds is None else self.times(rounds, "rounds", 1)

    def times(self, words, name, kernel):
        words = words.reshape(SHAPES[name]).astype(np.int64)
        first = (self.ctas[kernel, :, 1] & np.uint64(0xFFFFFFFF)).astype(np.int64).reshape(-1, 1, 1, 1)
        since = (words - first) & 0xFFFFFFFF
        us = self.begin[kernel].reshape(-1, 1, 1, 1) + since / self.ghz / 1e3
        return np.where(words > 0, us, np.nan)


def quiet(function, values, *more):
    values = np.asarray(values, float)
    values = values[~np.isnan(values)]
    return float(function(values, *more)) if len(values) else math.nan


def median(values):
    return quiet(np.median, values)


def mean(values):
    return quiet(np.mean, values)


def percentile(values, p=90):
    return quiet(np.percentile, values, p)


def stages_of(rows, order):
    """rows [n, places]: durations [n, len(order) - 1] between stamps that are there, in the order given; a stage that was passed over is NaN."""
    rows = np.asarray(rows, float).reshape(-1, rows.shape[-1] if len(rows) else PLACES)
    out = np.full((len(rows), len(order) - 1), np.nan)
    before = rows[:, order[0]].copy()
    for i, place in enumerate(order[1:]):
        now = rows[:, place]
        there = ~np.isnan(now)
        out[there, i] = (now - before)[there]
        before = np.where(there, now, before)
    return out


def table(title, names, groups):
    """groups: {label: durations [n, stages]}. Median, 90th percentile, mean over all rows (absent stages 0) and its share; the means add up."""
    groups = {label: of for label, of in groups.items() if len(of)}
    if not groups:
        return
    say(f"  {title}: " + "; ".join(f"{label}: {len(of)}" for label, of in groups.items()))
    say(f"    {'':50}" + "".join(f"| {label[:30]:>30} " for label in groups))
    say(f"    {'stage (W waits, F fence, P products)':50}" + f"| {'median    p90   mean  share':>30} " * len(groups))
    totals = {label: np.nansum(of, axis=1).mean() for label, of in groups.items()}
    for i, (name, kind) in enumerate(names):
        line = f"    {kind or ' ':2}{name[:47]:48}"
        for label, of in groups.items():
            x = of[:, i]
            part = np.nansum(x) / len(of)
            line += f"| {median(x):9.3f}{percentile(x):7.3f}{part:7.3f}{part / max(totals[label], 1e-9):6.1%} "
        say(line)
    for mark, label in (("W", "all waits"), ("F", "all fences"), ("P", "all waits for products"), ("", "all work")):
        if any(kind == mark for _, kind in names):
            at = [i for i, (_, kind) in enumerate(names) if kind == mark]
            say(f"      {label:46}  " + "".join(f"| {'':9}{'':7}{np.nansum(of[:, at]) / len(of):7.3f}{np.nansum(of[:, at]) / len(of) / max(totals[l], 1e-9):6.1%} " for l, of in groups.items()))
    say(f"      {'sum':46}  " + "".join(f"| {median(np.nansum(of, axis=1)):9.3f}{percentile(np.nansum(of, axis=1)):7.3f}{totals[l]:7.3f}       " for l, of in groups.items()))


def team_rows(call):
    """[cta, team, warp, task, place] of the solving warps."""
    return call.tasks[:, :16].reshape(SMS, 2, 8, TASKS, TASK_PLACES)


def whole_tasks(call):
    """Of tasks that a whole team has ended: [n, 8 warps, places], nth, cta, team."""
    x = team_rows(call).transpose(0, 1, 3, 2, 4)  # cta, team, task, warp, place
    done = ~np.isnan(x[..., 0]).any(-1) & ~np.isnan(x[..., TEAM_END]).any(-1)
    cta, team, nth = np.nonzero(done)
    return x[done], nth, cta, team


def is_paired(call, rows, nth, cta, team):
    """Whether the CTA's other team was at work for at least half of the task."""
    begin, end = rows[..., 0].min(1), rows[..., TEAM_END].max(1)
    out = np.zeros(len(rows), bool)
    for i in range(len(rows)):
        other = (cta == cta[i]) & (team != team[i])
        shared = np.clip(np.minimum(end[other], end[i]) - np.maximum(begin[other], begin[i]), 0, None).sum()
        out[i] = shared > 0.5 * (end[i] - begin[i])
    return out


def critical(rows):
    """rows [8 warps, places] of a task: {stage: us} along the warps that arrive last at each meeting; adds up to the task."""
    out = np.zeros(TEAM_END)
    now = rows[:, 0].min()
    # (first place behind the meeting before, the arrival at the next one, the wait's end)
    for first, arrival, met in ((1, 3, 4), (5, 10, 11), (12, 13, 14), (15, 21, 22)):
        last = int(np.argmax(rows[:, arrival]))
        if first == 1:
            out[0] += rows[last, 1] - now
            now = rows[last, 1]
        for place in range(max(first, 2), arrival + 1):
            out[place - 1] += rows[last, place] - max(now, rows[last, place - 1]) if rows[last, place] > now else 0.0
            now = max(now, rows[last, place])
        end = rows[:, met].max()
        out[met - 1] += max(end - now, 0)
        now = max(now, end)
    out[TEAM_END - 1] += max(rows[:, TEAM_END].max() - now, 0)
    return out


def show_solve(calls):
    firsts, furthers, alone, crit_first, crit_further, heads = [], [], [], [], [], {}
    order = list(range(TEAM_END + 1))
    offsets = {}
    feeds = {"first warp, first task": [], "first warp, further": [], "second warp, first task": [], "second warp, further": []}
    for call in calls:
        rows, nth, cta, team = whole_tasks(call)
        if not len(rows):
            return
        paired = is_paired(call, rows, nth, cta, team)
        for i in range(len(rows)):
            of = stages_of(rows[i], order)
            to = firsts if nth[i] == 0 else furthers if paired[i] else alone
            to.append(of)
            if nth[i] == 0 or paired[i]:
                (crit_first if nth[i] == 0 else crit_further).append(critical(rows[i]))
            if nth[i] > 0 and paired[i]:
                for head in range(2):
                    heads.setdefault(head, []).append(of[4 * head : 4 * head + 4])
        for w in range(16, 20):
            which = "first warp, " if w < 18 else "second warp, "
            for c in range(SMS):
                for r in range(1, TASKS):
                    of = call.tasks[c, w, r]
                    if np.isnan(of[0]) or np.isnan(of[4]):
                        continue
                    feeds[which + ("first task" if r == 1 else "further")].append(of[: len(FEED) + 1])
        # a further task's timeline: from the moment its team begins to look for its rows
        for i in range(len(rows)):
            if nth[i] == 0 or not paired[i]:
                continue
            zero = rows[i, :, 0].min()
            # of its two feeding warps: the round before, in which this task's rows are requested, this task's, and the next one
            round_of = lambda warp, nth: call.tasks[cta[i], 16 + 2 * warp + team[i], nth] if nth < TASKS else np.full(TASK_PLACES, np.nan)
            before, feed, later = ([round_of(warp, nth[i] + n) for warp in range(2)] for n in range(3))
            counted = [later[warp][18] if not np.isnan(later[warp][18]) else feed[warp][19] for warp in range(2)]
            marks = {"feed 1, a round before: this task's rows requested": before[0][10], "team: begins": zero, "team: all rows there": rows[i, :, 1].max(), "feed 1: gates of this task found": feed[0][1],
                     "feed 2: gates of this task found": feed[1][1], "feed 2: writes of the task before requested": feed[1][3], "feed 1: gates told": feed[0][4], "feed 2: gates told": feed[1][4],
                     "feed 2: those writes read, place free": feed[1][5], "feed 1: its part of the task before counted": feed[0][18], "feed 2: its part of the task before counted": feed[1][18],
                     "feed 2, a round before: this task's values asked for": before[1][10], "team: operands met": rows[i, :, 4].max(), "feed 1: operands' stores requested": feed[0][7], "feed 1: operands read, place free": feed[0][8],
                     "feed 1: next task found": feed[0][9], "feed 1: next task's rows requested": feed[0][10], "feed 2: next task found": feed[1][9],
                     "team: last at corners": rows[i, :, 10].max(), "team: corners met": rows[i, :, 11].max(), "team: last at vote": rows[i, :, 13].max(),
                     "team: vote met": rows[i, :, 14].max(), "team: reads told": rows[i, :, 16].max(), "feed 1: reads' stores requested": feed[0][13], "feed 1: reads read, place free": feed[0][14],
                     "team: last told done": rows[i, :, 21].max(), "team: done met": rows[i, :, 22].max(), "team: end": rows[i, :, 23].max(),
                     "feed 1: its part of this task counted": counted[0], "feed 2: its part of this task counted": counted[1]}  # fmt: skip
            for name, at in marks.items():
                offsets.setdefault(name, []).append(at - zero)
    cat = lambda of: np.concatenate(of) if of else np.zeros((0, TEAM_END))
    table("a team's task, stages of its warps", TEAM, {"first": cat(firsts), "further, other team at work": cat(furthers), "further, other team idle": cat(alone)})
    table("a further task by v head, other team at work", TEAM, {f"head {h}'s warps": cat(of) for h, of in heads.items()})
    table("a task along the warps that are last at each meeting (adds up to the team's task)", TEAM, {"first": np.array(crit_first).reshape(-1, TEAM_END), "further, other team at work": np.array(crit_further).reshape(-1, TEAM_END)})
    ghz = statistics.fmean(call.ghz for call in calls)
    say("  the same in cycles, beside what was counted from the listing for the longest chain of a team alone (page, 'without decay': 5226)")
    for name, stages, counted in COUNTED:
        x = [np.array(of).reshape(-1, TEAM_END)[:, [s - 1 for s in stages]].sum(1).mean() * ghz * 1e3 if of else math.nan for of in (crit_first, crit_further)]
        say(f"    {name:52}{counted or '':>8}   first {x[0]:8.0f}   further {x[1]:8.0f}" + (f"   {x[1] / counted:5.2f} x" if counted else ""))
    say("  a further task with the other team at work, us from its team's begin (median, p10, p90)")
    for name, at in sorted(offsets.items(), key=lambda x: np.nan_to_num(median(x[1]), nan=1e9)):
        say(f"    {name:52}{median(at):9.3f}{percentile(at, 10):9.3f}{percentile(at):9.3f}")
    table("feeding warps, a round", [FEED[i - 1] for i in FEED_ORDER[1:]], {label: stages_of(np.array(of), FEED_ORDER) for label, of in feeds.items() if of})


def unit_list(call):
    """Of each unit that a CTA of the scan worked on: (cta, number from 0, kind, chunks, first round of chunks, 1 if the round before that brings its state)."""
    out = []
    for cta in range(SMS):
        first = 0
        for number in range(UNITS):
            what = int(call.what[cta, 0, number])
            if what == 0:
                break
            kind, chunks, sent = what & 15, what >> 8 & 0xFFFF, what >> SENT & 1
            first += sent
            out.append((cta, number, kind, chunks, first, sent))
            first += {7: 1, 8: 2}.get(kind, chunks + (kind == 6))
    return out


def show_scan(calls):
    units, chunks, states, storing = {}, {}, {}, []
    senders = {}
    sender_units = {"leader, first": [], "leader, further": []}
    for call in calls:
        for cta, number, kind, count, first, sent in unit_list(call):
            name = KINDS[kind]
            for warp in range(8):
                if int(call.what[cta, warp, number]) & 15 == kind and not np.isnan(call.units[cta, warp, number, 8]):
                    units.setdefault((kind, number > 0), []).append(call.units[cta, warp, number])
                own = int(call.what[cta, warp, number]) & 15
                rows = call.rounds[cta, warp, first : first + count]
                for i, row in enumerate(rows):
                    if np.isnan(row[0]):
                        continue
                    where = "first of unit" if i == 0 else "last of unit" if i == count - 1 else "others"
                    if own in (1, 2):
                        chunks.setdefault(f"{'all columns' if own == 1 else 'half'}, {where}", []).append(row[: len(CHUNK) + 1])
                    elif own in (4, 5, 6):
                        states.setdefault(where, []).append(row[: len(STATE) + 1])
                    elif own == 3:
                        storing.append(row[: len(STORING) + 1])
            names = "units" if kind in (1, 2) else "states" if kind in (4, 5, 6) else "outputs" if kind == 7 else None
            if names:
                for warp in range(8, 12):
                    rows = call.rounds[cta, warp, first : first + max(count, 1 if kind == 7 else 0)]
                    for row in rows:
                        if not np.isnan(row[0]):
                            senders.setdefault((names, "requesting warp" if warp == 8 else "others"), []).append(row)
                    row = call.rounds[cta, warp, first - 1] if sent and first <= ROUNDS else np.full(PLACES, np.nan)
                    if not np.isnan(row[0]):
                        senders.setdefault(("state", ("requesting warp" if warp == 8 else "others") + (", further units" if number else ", first unit")), []).append(row)
            row = call.units[cta, 8, number]
            if not np.isnan(row[2]):
                sender_units["leader, further" if number else "leader, first"].append(row)
    for kind in KINDS:
        order = [0, *UNIT_ORDER]
        groups = {}
        for further, label in ((False, "a CTA's first unit"), (True, "further units")):
            if (kind, further) in units:
                groups[label] = stages_of(np.array(units[kind, further]), order)
        table(f"scan, unit of kind {KINDS[kind]!r}, stages of its warps", [UNIT[i] for i in UNIT_ORDER], groups)
    table("scan, a chunk", CHUNK, {l: stages_of(np.array(x), list(range(len(CHUNK) + 1))) for l, x in sorted(chunks.items())})
    table("scan, a chunk of states or transition", STATE, {l: stages_of(np.array(x), list(range(len(STATE) + 1))) for l, x in sorted(states.items())})
    if storing:
        table("scan, a chunk of a second warpgroup that stores", STORING, {"all": stages_of(np.array(storing), list(range(len(STORING) + 1)))})
    for what, names in (("units", SENDER), ("state", SENDER_STATE), ("states", SENDER_STATES), ("outputs", SENDER_OUTPUT)):
        table(f"scan, senders, a round " + ("that brings a unit's state" if what == "state" else f"of {what}"), names, {l: stages_of(np.array(x), list(range(len(names) + 1))) for (w, l), x in senders.items() if w == what})
    keys = list(SENDER_UNIT)
    table("scan, senders, a unit", [SENDER_UNIT[i] for i in keys], {l: stages_of(np.array(x), [0, *keys]) for l, x in sender_units.items() if x})


def compose(call, sm):
    """[(stage, us)] of an SM from the first CTA's begin to the last one's end; they add up to it."""
    out, now = [], 0.0

    def to(stage, until):
        nonlocal now
        if not math.isnan(until) and until > now:
            out.append((stage, until - now))
            now = until

    solve = np.nonzero(call.begun[0] & (call.sm[0] == sm))[0]
    scan = np.nonzero(call.begun[1] & (call.sm[1] == sm))[0]
    for c in sorted(solve, key=lambda c: call.begin[0, c]):
        to("launch, until solve's CTA begins", call.begin[0, c])
        rows = team_rows(call)[c]
        ends = np.nanmax(np.where(np.isnan(rows[..., TEAM_END]), -1, rows[..., TEAM_END]), axis=(1, 2))
        team = rows[int(np.argmax(ends))]
        for n in range(TASKS):
            begin, end = team[:, n, 0], team[:, n, TEAM_END]
            if np.isnan(end).any():
                to("solve: CTA's start" if n == 0 else "solve: no further task found", np.nanmin(begin) if not np.isnan(begin).all() else math.nan)
                break
            to("solve: CTA's start" if n == 0 else "solve: between tasks", begin.min())
            to("solve: first task" if n == 0 else "solve: further tasks", end.max())
        to("solve: last stores, CTA's end", call.end[0, c])
    for c in sorted(scan, key=lambda c: call.begin[1, c]):
        to("SM without a CTA, until the scan's begins", call.begin[1, c])
        to("scan: CTA's start", call.ordered[1, c])
        for number in range(UNITS):
            row = call.units[c, 0, number]
            if np.isnan(row[0]):
                break
            to("scan: between units", row[0])
            if np.isnan(row[2]):
                to("scan: waits to know there is no more", row[1])
                break
            for place in UNIT_ORDER:
                to("scan: " + (UNIT[place][0] if place not in (1, 4, 11) else UNIT[place][0] + (" (first)" if number == 0 else " (further)")), row[place])
        to("scan: other warps, last outputs, CTA's end", call.end[1, c])
    to("idle until the last CTA ends", call.last)
    return out


def show_span(call, spans, plain, label):
    rows, nth, cta, team = whole_tasks(call)
    say(f"\n== {label}: {statistics.median(plain):.2f} us as it is, {statistics.median(spans):.2f} with stamps ({statistics.median(spans) / statistics.median(plain) - 1:+.1%}); {call.ghz:.3f} GHz; "
        f"second passes {call.second_passes}; first CTA's begin to last one's end {call.last:.2f}")
    q = lambda x: f"{quiet(np.min, x):.2f} / {median(x):.2f} / {quiet(np.max, x):.2f}"
    say("  timeline, us from the first CTA's begin: first / median / last")
    solve, scan = call.begun[0], call.begun[1]
    if solve.any() and len(rows):
        say(f"    {solve.sum()} CTAs of solve begin {q(call.begin[0][solve])}, have ordered {q(call.ordered[0][solve])}, end {q(call.end[0][solve])}")
        for n in range(int(nth.max()) + 1):
            at = nth == n
            say(f"    task {n + 1} of a team: {at.sum()}; begins {q(rows[at][..., 0].min(1))}, has its rows {q(rows[at][..., 1].max(1))}, ends {q(rows[at][..., TEAM_END].max(1))}, takes {q(rows[at][..., TEAM_END].max(1) - rows[at][..., 0].min(1))}")
    say(f"    {scan.sum()} CTAs of the scan begin {q(call.begin[1][scan])}, are ordered {q(call.ordered[1][scan])}, end {q(call.end[1][scan])}")
    for kind in KINDS:
        of = [call.units[c, 0, n] for c, n, k, *_ in unit_list(call) if k == kind]
        if of:
            of = np.array(of)
            say(f"    {len(of)} units, {KINDS[kind]}: known {q(of[:, 1])}, first chunk there {q(of[:, 4])}, end {q(of[:, 8])}")
    sms = sorted(set(call.sm[call.begun].tolist()))
    sums, counts = {}, {}
    for sm in sms:
        for stage, us in compose(call, sm):
            sums[stage] = sums.get(stage, 0) + us
            counts[stage] = counts.get(stage, 0) + 1
    last_kernel, last_cta = np.unravel_index(np.nanargmax(call.end), call.end.shape)
    path, whole = compose(call, call.sm[last_kernel, last_cta]), statistics.median(spans)
    of_last = {}
    for stage, us in path:
        of_last[stage] = of_last.get(stage, 0) + us
    say(f"  where an SM's time goes, us (mean of {len(sms)} SMs), and that of the SM whose CTA ends last ({int(last_cta)}); share of the span with stamps")
    say(f"    {'launch before the first CTA, end behind the last':52}{whole - call.last:8.2f}{(whole - call.last) / whole:8.1%} |{whole - call.last:8.2f}{(whole - call.last) / whole:8.1%}")
    for stage in dict.fromkeys([s for s, _ in path] + list(sums)):
        a, b = sums.get(stage, 0) / len(sms), of_last.get(stage, 0)
        say(f"    {stage:52}{a:8.2f}{a / whole:8.1%} |{b:8.2f}{b / whole:8.1%}")
    known = sum(of_last.values()) + whole - call.last
    say(f"    {'sum':52}{sum(sums.values()) / len(sms) + whole - call.last:8.2f}         |{known:8.2f}{known / whole:8.1%}")


def show(label, calls, spans, plain):
    middle = calls[int(np.argsort(spans)[len(spans) // 2])]
    for what in (lambda: show_span(middle, spans, plain, label), lambda: show_solve(calls), lambda: show_scan(calls)):
        try:
            what()
        except Exception as error:  # the other tables count as well
            import traceback
            say(f"  TABLE FAILS: {error!r}\n" + "".join(traceback.format_tb(error.__traceback__)[-2:]))


# ---- on a GPU --------------------------------------------------------------------------------------
def lengths_of():
    import json

    from harness.dataset.gdn import sequence_lengths

    out = {}
    for line in next(Path("workloads").rglob("gdn_prefill*.jsonl")).read_text().splitlines():
        w = json.loads(line)
        w = w.get("workload", w)
        key = w["axes"]["total_seq_len"], w["axes"]["num_seqs"]
        out.setdefault(key, sequence_lengths(w["uuid"], *key))
    return out


def most_whole_of(tokens, num_seqs):
    """As kernel.py's choose()."""
    text = Path("solutions/gdn_prefill/kernel.py").read_text()
    shares = eval(re.search(r"(?m)^SHARES = (.*)$", text)[1], {"math": math})
    share = next(count for limit, count in shares if num_seqs <= limit)
    chunks = (tokens + min(tokens, num_seqs) * 63) // 64
    return int(chunks / share) if share else chunks


def package(variant, folder):
    import importlib

    sys.path.insert(0, str(folder))
    os.environ["TVM_FFI_CACHE_DIR"] = str(folder / f"{variant}.cache")
    return importlib.import_module(f"gdn10_{variant}.native_build")


def build(variant, folder):
    import shutil

    tree, to = folder / f"{variant}.tree", folder / f"gdn10_{variant}"
    shutil.rmtree(tree, ignore_errors=True), shutil.rmtree(to, ignore_errors=True)
    patch(Path("."), tree, variant)
    to.mkdir(parents=True)
    for path in [*(tree / "solutions/common").glob("*"), *(tree / "solutions/gdn_prefill").glob("*.cu*")]:
        shutil.copy(path, to / path.name)
    (to / "__init__.py").touch()
    since = time.monotonic()
    package(variant, folder).load_native("prefill.cu", (9, 0))
    (folder / f"{variant}.built").write_text(f"{time.monotonic() - since:.0f}")


class Lab:
    def __init__(self, folder):
        import torch

        from harness.timing import CuptiTimer, _flush_buffer, _Recording
        from tests.oracles.gdn_prefill import HEAD_SIZE, batch_of, empty_outputs

        self.torch, self.folder, self.modules = torch, folder, {}
        self.timer, self.recording = CuptiTimer("cuda:0"), _Recording
        self.flush = _flush_buffer("cuda:0")
        self.batch_of, self.empty_outputs, self.scale = batch_of, empty_outputs, HEAD_SIZE**-0.5
        self.lengths, self.inputs = lengths_of(), {}
        assert torch.cuda.get_device_properties(0).multi_processor_count == SMS, "arrays are for 132 SMs"

    def module(self, variant):
        if variant not in self.modules:
            self.modules[variant] = package(variant, self.folder).load_native("prefill.cu", (9, 0))
        return self.modules[variant]

    def call_of(self, variant, case):
        if case not in self.inputs:
            x = self.batch_of(self.lengths[case], 1)
            self.inputs[case] = {n: v.cuda() if self.torch.is_tensor(v) else v for n, v in x.items()}
        inputs, module = self.inputs[case], self.module(variant)
        outputs, whole = self.empty_outputs(inputs), most_whole_of(*case)
        args = [x for name, x in inputs.items() if name != "scale"]

        def call():
            scratch = self.torch.empty(module.count_scratch(*case), dtype=self.torch.uint8, device="cuda")
            module.prefill(*args, self.scale, *outputs, scratch, whole)

        return call, outputs

    def measure(self, variant, case, mode, calls, stamps=None):
        """[(span, {kernel: (begin, end)})] in us, as CuptiTimer does; with `stamps` also [arrays] of each call."""
        torch, module = self.torch, self.module(variant)
        call, outputs = self.call_of(variant, case)
        module.set_mode(mode)
        for _ in range(3):
            self.flush.zero_()
            call()
        torch.cuda.synchronize()
        recording, windows, taken = self.recording(self.timer._cupti), [], []
        with recording:
            for _ in range(calls):
                if stamps:
                    module.clear_stamps()
                self.flush.zero_()
                torch.cuda.synchronize()
                begin = self.timer._cupti.get_timestamp()
                call()
                end = self.timer._cupti.get_timestamp()
                torch.cuda.synchronize()
                windows.append((begin, end))
                if stamps:
                    module.read_stamps(*[stamps[name] for name in SIZES])
                    taken.append([stamps[name].cpu().numpy() for name in SIZES])
        module.set_mode(0)
        of = {}
        for activity in recording.activities:
            of.setdefault(activity.correlation_id, []).append(activity)
        out = []
        for begin, end in windows:
            work = [a for launch in recording.launches if begin <= launch.start_ns <= end for a in of.get(launch.correlation_id, ())]
            first = min(a.start_ns for a in work)
            kernels = {}
            for a in work:
                name = "solve" if "solve_kernel" in a.name else "scan" if "scan_kernel" in a.name else a.name[:20]
                kernels[name] = ((a.start_ns - first) / 1e3, (a.end_ns - first) / 1e3)
            out.append(((max(a.end_ns for a in work) - first) / 1e3, kernels))
        return out, taken, outputs

    def new_stamps(self):
        torch = self.torch
        return {name: torch.zeros(size, dtype=torch.int64 if name == "ctas" else torch.int32, device="cuda") for name, size in SIZES.items()}


def unsigned(taken):
    return [x.view(np.uint64) if x.dtype == np.int64 else x.view(np.uint32) for x in taken]


def brief(calls):
    """Medians over tasks and units of calls with few stamps."""
    first, further, alone, units, state, full = [], [], [], [], [], []
    for call in calls:
        rows, nth, cta, team = whole_tasks(call)
        if len(rows):
            took = rows[..., TEAM_END].max(1) - rows[..., 0].min(1)
            paired = is_paired(call, rows, nth, cta, team)
            first += took[nth == 0].tolist()
            further += took[(nth > 0) & paired].tolist()
            alone += took[(nth > 0) & ~paired].tolist()
        for c, n, kind, *_ in unit_list(call):
            row = call.units[c, 0, n]
            if kind in (1, 2, 4):
                units.append(row[8] - row[1])
                if n > 0:
                    known = row[3] if np.isnan(row[12]) else row[12]  # the state
                    state.append(known - row[2])
                    full.append(row[4] - known)
    return [median(x) for x in (first, further, alone, units, state, full)]


def run(seconds, folder):
    out = os.environ.get("OUT")
    left = lambda: seconds - (time.monotonic() - START)
    built = [v for v in VARIANTS if (folder / f"{v}.built").is_file()]
    lab = Lab(folder)
    say(f"set up {time.monotonic() - START:.1f} s; not built: {[v for v in VARIANTS if v not in built]}")
    keep = {}
    plain, outputs_of = {}, {}
    for case in CASES:
        if left() < 12:
            say(f"SKIPPED stamps of {case}")
            continue
        label = f"{case[0]}/{case[1]}"
        try:
            measured, _, right = lab.measure("plain", case, 0, CALLS)
            plain[case], outputs_of[case] = measured, right
            got, taken, outputs = lab.measure("stamped", case, 0, STAMPED_CALLS, lab.new_stamps())
            same = all(lab.torch.equal(a, b) for a, b in zip(right, outputs, strict=True))
            calls = [Call(*unsigned(x)) for x in taken]
            spans = [span for span, _ in got]
            if not same:
                say(f"{label}: WRONG, the build with stamps gives other outputs")
            show(label, calls, spans, [span for span, _ in measured])
            middle = taken[int(np.argsort(spans)[len(spans) // 2])]
            keep |= {f"{label}:{name}": x for name, x in zip(SIZES, unsigned(middle), strict=True)}
            keep |= {f"{label}:spans": np.array(spans), f"{label}:plain": np.array([span for span, _ in measured])}
            if out:
                np.savez_compressed(Path(out, "gdn10-stamps.npz"), **keep)
        except Exception as error:
            say(f"{label}: FAILS {error!r}")
    say("\n== knock-outs (wrong results but for " + ", ".join(RIGHT) + f"), medians of {CALLS} calls, L2 cold; a few stamps in each build; ({time.monotonic() - START:.0f} s)")
    say("   mode: whole = as it is; solve = solve_kernel alone; apart = the scan behind all of solve_kernel. us: span; solve's and scan's begin to end; a team's first task, further ones (other team at work; idle); a unit of states or of all, its state, its first chunk (further units)")
    names, base = {0: "whole", 1: "solve", 2: "apart"}, {}
    jobs = [(case, variant, mode) for case in KNOCKED for variant, (modes, _) in KNOCKS.items() for mode in modes]
    jobs.sort(key=lambda job: (job[1] != "base", KNOCKED.index(job[0]), list(KNOCKS).index(job[1])))
    printed = None
    for case, variant, mode in jobs:
        if variant not in built:
            continue
        if left() < 4:
            say("SKIPPED the rest of the knock-outs: no time left")
            break
        if printed != case:
            printed = case
            say(f"  {case[0]}/{case[1]}" + (f", plain {statistics.median(s for s, _ in plain[case]):.2f}" if case in plain else ""))
            say(f"    {'':26}{'mode':>6}{'span':>8}{'+-':>7} | {'solve':>7}{'+-':>7} | {'scan':>14} | {'first':>6}{'+-':>6} {'further':>7}{'+-':>6} {'alone':>6} | {'unit':>6}{'+-':>6} {'state':>6} {'full':>6}")
        try:
            got, taken, outputs = lab.measure(variant, case, mode, CALLS if mode == 0 else 11, None)
            is_wrong = variant in RIGHT and mode != 1 and case in outputs_of and not all(lab.torch.equal(a, b) for a, b in zip(outputs_of[case], outputs, strict=True))
            stamps, taken, _ = lab.measure(variant, case, mode, 2, lab.new_stamps())
            of = brief([Call(*unsigned([x[0], x[1]]), None, *unsigned([x[3]])) for x in taken])
        except Exception as error:
            say(f"    {variant:26}{names[mode]:>6} FAILS {error!r}"[:300])
            if "CUDA" in repr(error) or "cuda" in repr(error):
                say("STOPPED: the device is lost to this process")
                return 1
            continue
        span = statistics.median(s for s, _ in got)
        solve = statistics.median(k["solve"][1] - k["solve"][0] for _, k in got)
        scan = [statistics.median(k["scan"][i] for _, k in got) for i in range(2)] if "scan" in got[0][1] else None
        now = [span, solve, of[0], of[1], of[3]]
        if variant == "base":
            base[case, mode] = now
        d = [f"{a - b:+.2f}" if variant != "base" else "" for a, b in zip(now, base.get((case, mode), now), strict=True)]
        say(f"    {variant:26}{names[mode]:>6}{span:8.2f}{d[0]:>7} | {solve:7.2f}{d[1]:>7} | " + (f"{scan[0]:6.2f}-{scan[1]:6.2f} " if scan else f"{'':14} ")
            + f"| {of[0]:6.2f}{d[2]:>6} {of[1]:7.2f}{d[3]:>6} {of[2]:6.2f} | {of[4 - 1]:6.2f}{d[4]:>6} {of[4]:6.2f} {of[5]:6.2f}" + (" WRONG: other outputs than plain" if is_wrong else ""))
    say(f"ended {time.monotonic() - START:.0f} s after its start")
    return 0


def show_file(path):
    data = np.load(path)
    for label in dict.fromkeys(key.split(":")[0] for key in data):
        call = Call(*[data[f"{label}:{name}"] for name in SIZES])
        show(label, [call], data[f"{label}:spans"][:1].tolist(), data[f"{label}:plain"].tolist())
        say("brief: " + str(brief([call])))


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "build":
        build(sys.argv[2], Path(sys.argv[3]).resolve())
    elif what == "show":
        show_file(sys.argv[2])
    else:
        sys.exit(run(float(sys.argv[2]), Path(sys.argv[3]).resolve()))
