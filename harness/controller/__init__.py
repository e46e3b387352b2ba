"""The optimisation controller: what a round knows, what it decides and what it remembers.

    state        a profile as a signature that rounds can share; what memory knows of it
    directions   one bounded direction for a state
    decision     the evidence on a candidate, the gates it must pass, the three labels
    supervisor   stalling, cycles, regressions, plateaus; what is blocked, what is recommended
    memory       closed rounds, one a line
    regimes      which few workloads stand for all
    lines        what a line of attempts or decisions holds
    archive      results/search/<room>: attempts, decisions, memory, runs
    index        the archive as a sqlite file that can be made again at any time

`decide`, `choose_direction` and `supervise` are pure: the same history gives the same answer.
Nothing here measures; harness.search does.
"""
