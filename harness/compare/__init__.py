"""What a user would pick instead, by how much, and how sure that is.

    statistics   paired ratios of latencies with intervals; FAST, SLOW, SAME, UNSURE
    scores       the contest's score, and the averages that it differs from
    regimes      workloads grouped along each axis that varies
    record       results/compare/<room>.json
    published    latencies that others published for another chip
    analysis     a record's side A against its side B
    revisions    rooms as a git revision packs them
    sides        what is measured against what
    lanes        one worker a side, each with a thread of its own
    rounds       one workload: all sides judged, then measured in turns
    ledger       compared workloads as they are made, for --resume
    plan         which sides, which workloads, how often
    display      a comparison as lines of text
    engine       the interleaved run

Nothing here imports torch, and only `statistics` loads numpy and scipy.
"""
