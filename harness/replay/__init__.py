"""High-trial replay: how often a solution is wrong on fresh inputs, and how close to wrong.

    statistics  rates, intervals, detection; pure
    batch       what parent and worker say to each other about a run of trials
    margins     how far the boundary of a top-k selection is from a tie
    trials      one trial: fresh inputs, reference, official rule
    worker      evaluate's worker process with trials in the place of jobs
    ledger      finished batches, one a line
    record      results/replay/<room>.json
    suspicion   what in a record stands against its solution
    display     what a replay prints
    engine      runs replays

Nothing here imports torch but the worker's own modules; scipy is loaded by the first interval.
"""
