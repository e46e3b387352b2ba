"""Profiles: which kernels a call launches, what bounds the dominant one, what limits it.

    engine ──► pool ──► evaluate's worker       correctness and latency, cold L2
       ├─────► pool ──► worker ──► traced_call  Torch Profiler; leaves the inputs of one call
       ├─────► ncu ───► single_call             NCU's counters of that call, or an imported table
       └──► results/profiles/<device>/<room>.json

    shares            Torch Profiler's trace to a call's kernels; pure
    collecting        the evidence of one workload, by each tool
    bottleneck        metrics to class and limiting resource, with the thresholds; pure
    representatives   which workload stands for a regime; pure
    record            what was found, kept and merged
    display           what a profile prints
    engine            runs profiles

Only what a worker or NCU runs loads torch: worker, traced_call, single_call.
"""
