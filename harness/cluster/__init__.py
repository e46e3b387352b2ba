"""The same jobs on a Ray cluster: one GPU a worker, one ledger, no workload twice.

    schedule    which worker judges what next, and what a lost one costs; pure
    estimates   how long a workload is expected to take
    worker      what runs on a host: a GPU's lock and pool, and the maker of blobs
    engine      the driver's side: actors, their deaths, results as they finish
    simulate    the schedule on clusters that are not there; pure
    scale       what several GPUs gain: results/scale/ and its tables
    measure     the runs behind it

Ray is imported by the engine when it is entered, and by nothing else.
"""
