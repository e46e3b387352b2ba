"""Drives flashinfer-bench's own builder and evaluators; the only door to them.

    sweep ──► engine ──► pool ──(JSON lines over pipes)──► worker ──► judge ──► flashinfer-bench
      │
      └──► records: every verdict is appended and fsynced as it arrives

One worker process a room stays warm, in a session of its own. It is replaced after a crash, a
timeout or a CUDA fault, so that no solution's fault becomes another one's verdict. The next one
can import what takes seconds before it is needed, and wait, away from the GPU (standby). A worker
may keep a solution that it judged, to be measured again and again. Whoever asks a worker something
else than a verdict (replay, audit, profiling) answers jobs in the same loop: answering. This
package imports no torch; only the worker's modules (worker, judge, timed_call, diagnosis,
official_rule) do.
"""
