"""Probes for what a judge of outputs cannot see: cheats, impurities, and memory errors.

    engine ──► pool ──► worker ──► one probe on a built solution      (a process a probe)
       │
       └──► results/audit/<room>.json

    catalogue      the probes: name, claim, what each needs
    static_scan    the packed sources read as text
    case           one workload in a probe's process: trials, the built solution, the official rule
    values         probes of what a call reads, writes and keeps
    surroundings   probes of what a call does to the judge, to files, threads and processes
    device         probes that need a GPU: streams, graphs, windows, synchronisation
    recording      CUPTI's records of a call
    record         results/audit/<room>.json
    sanitizers     compute-sanitizer, judged by its summary
    timers         one call by CUPTI, by events around a graph (timer_calls), and by NCU
    counting       NCU's durations of all calls of a room in one process (counted_calls)
    timer_record   results/timers/<room>.json
    single_call    what runs under a sanitizer

A probe finds known tricks; it contains nothing. A solution runs with its caller's rights.
Only what a worker or NCU runs loads torch: case, values, surroundings, device, single_call,
timer_calls, counted_calls.
"""
