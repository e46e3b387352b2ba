"""Evidence: one file a recorded run, and an append-only ledger of single verdicts.

    results/runs/<device>/<room>/<UTC stamp>-<hash8>.json   every recorded run, committed
    results/latest/<device>/<room>.json                     the last full sweep, committed
    traces/<device>/<room>.jsonl                            one official trace a line
    traces/<device>/<room>.unjudged.ndjson                  what is no verdict on the solution
    traces/<device>/<room>.jsonl.lock                       held while a run judges the room

    strict_json   numbers that JSON lacks are the strings "NaN", "Infinity", "-Infinity"
    summary       mean, median, p95; four significant digits
    runs          RunRecord and the checks it must pass
    files         where records lie, and the judge's identity
    lines         files that grow by one fsynced line at a time
    ledger        traces as they are made
    printable     text that others chose, without control characters

Nothing here imports torch.
"""

from harness.errors import RecordError
from harness.records.files import (
    HASH_CHARACTERS,
    all_latest,
    judge_sha256,
    latest,
    latest_objection,
    load,
    official_uuids,
    run_path,
    settings_sha256,
    write_latest,
    write_run,
)
from harness.records.ledger import ResumeKey, TraceEntry, TraceLedger
from harness.records.lines import LedgerWarning, append_line, read_lines, sole_writer
from harness.records.runs import (
    COMMIT,
    COMMIT_OR_UNKNOWN,
    NAME,
    OFFICIAL_STATUSES,
    RETRIED_STATUSES,
    SHA256,
    STATUSES,
    UNJUDGED_STATUSES,
    UNKNOWN_COMMIT,
    DatasetIdentity,
    Protocol,
    RunRecord,
    Subject,
    WorkloadRow,
    read_subject,
    to_text,
)
from harness.records.strict_json import dump_document, read_json
from harness.records.summary import ABSENT, Summary, format_digits, format_us, summarise

__all__ = [
    "ABSENT",
    "COMMIT",
    "COMMIT_OR_UNKNOWN",
    "HASH_CHARACTERS",
    "NAME",
    "OFFICIAL_STATUSES",
    "RETRIED_STATUSES",
    "SHA256",
    "STATUSES",
    "UNJUDGED_STATUSES",
    "UNKNOWN_COMMIT",
    "DatasetIdentity",
    "LedgerWarning",
    "Protocol",
    "RecordError",
    "ResumeKey",
    "RunRecord",
    "Subject",
    "Summary",
    "TraceEntry",
    "TraceLedger",
    "WorkloadRow",
    "all_latest",
    "append_line",
    "dump_document",
    "format_digits",
    "format_us",
    "judge_sha256",
    "latest",
    "latest_objection",
    "load",
    "official_uuids",
    "read_json",
    "read_lines",
    "read_subject",
    "run_path",
    "settings_sha256",
    "sole_writer",
    "summarise",
    "to_text",
    "write_latest",
    "write_run",
]
