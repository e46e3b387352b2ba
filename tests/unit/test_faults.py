"""Workers that die, hang or lie in the middle of a sweep cost their own workload alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness.errors import ExitCode
from harness.evaluate import pool as pool_module
from harness.evaluate import process
from harness.evaluate.secrecy import without_secrets
from harness.records import RETRIED_STATUSES
from tests.unit import fault_room as room
from tests.unit.fault_registry import ALL_FAULTS, WORKER_FAULTS

TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("fault", WORKER_FAULTS, ids=lambda fault: fault.name)
def test_a_fault_costs_its_own_workload_alone(fault, tmp_path, record_property):
    bad = f"{fault.behaviour}-1"
    uuids = ["good-0", bad, "good-2", "good-3"]
    workspace = room.fault_checkout(tmp_path / "checkout", uuids)
    with room.stand_ins(workspace):
        assert room.sweep(workspace) is ExitCode.FAILED
        first = {entry.uuid: entry for entry in room.ledger(workspace).entries()}
        assert room.sweep(workspace, resume=True) is ExitCode.FAILED
    assert {uuid: entry.status for uuid, entry in first.items()} == {
        uuid: fault.status if uuid == bad else "PASSED" for uuid in uuids
    }
    record_property("verdict", first[bad].status)
    assert fault.words in first[bad].detail
    took_s = first[bad].measurement["stages_s"]["total"]
    assert took_s < room.TIMEOUT_S + room.GRACE_S
    is_judged = fault.status not in RETRIED_STATUSES
    room.assert_one_verdict_each(workspace, [u for u in uuids if u != bad or is_judged])
    attempts = [entry for entry in room.ledger(workspace).entries() if entry.uuid == bad]
    assert len(attempts) == (1 if is_judged else 2), "only what is no verdict is asked again"


def test_a_log_without_end_keeps_a_bounded_part_of_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "LOG_LIMIT_BYTES", 1 << 20)
    monkeypatch.setattr(process, "LIFE_CHECK_S", 0.01)
    used = []
    bound = process.WorkerProcess._bound_log

    def watch(worker):
        bound(worker)
        used.append(process.os.fstat(worker._log.fileno()).st_blocks * 512)

    monkeypatch.setattr(process.WorkerProcess, "_bound_log", watch)
    workspace = room.fault_checkout(tmp_path / "checkout", ["prints-0", "good-1"])
    with room.stand_ins(workspace):
        room.sweep(workspace)
    loud, good = room.judged(workspace)
    assert loud.status == "TIMEOUT" and good.status == "PASSED"
    assert len(used) > 10 and min(used[5:]) < 1 << 20, "the disk is given back"
    assert len(loud.log) == process.LOG_TAIL_BYTES and set(loud.log) <= {"x", "\n"}


def test_a_child_that_shed_its_environment_ends_with_its_worker(tmp_path):
    workspace = room.fault_checkout(tmp_path / "checkout", ["detaches-0"])
    with room.stand_ins(workspace):
        room.sweep(workspace)
    (entry,) = room.judged(workspace)
    assert entry.status == "TIMEOUT"
    pid = re.search(r"detached (\d+)", entry.log)[1]
    state = Path(f"/proc/{pid}/stat")
    assert not state.exists() or state.read_text().rpartition(")")[2].split()[0] == "Z"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HF_TOKEN", "x"),
        ("AWS_SECRET_ACCESS_KEY", "x"),
        ("OPENAI_API_KEY", "x"),
        ("github_token", "x"),
        ("DB_PASSWORD", "x"),
        ("MYSQL_PASSWORD_FILE", "x"),
        ("GOOGLE_APPLICATION_CREDENTIALS", "x"),
        ("GH_PAT", "x"),
        ("PGPASSWORD", "x"),
        ("GITHUBTOKEN", "x"),
        ("OPENAIKEY", "x"),
        ("SENTRYDSN", "x"),
        ("SSHPASSPHRASE", "x"),
        ("GITCREDENTIALS", "x"),
        ("PROXYAUTHORIZATION", "x"),
        ("SESSIONCOOKIE", "x"),
        ("TF_VAR_dbpassword", "x"),
        ("DB_PASS", "x"),
        ("MYSQL_PWD", "x"),
        ("DOCKER_AUTH_CONFIG", "x"),
        ("TOKEN_GITHUB", "x"),
        ("HF_TOKEN_2", "x"),
        ("PRIVATE_KEY_PEM", "x"),
        ("AZURE", "AccountName=a;AccountKey=x"),
        ("AWS_ACCESS_KEY_ID", "x"),
        ("DATABASE_DSN", "x"),
        ("SSH_AUTH_SOCK", "/run/agent"),
        ("INDEX", "https://me:hidden@example.org/simple"),
        ("REMOTE", "https://hidden@example.org/x.git"),
    ],
)
def test_a_secret_does_not_reach_a_worker(name, value):
    assert without_secrets({name: value, "PATH": "/bin"}) == {"PATH": "/bin"}


def test_what_a_worker_needs_reaches_it():
    needed = {
        "PATH": "/bin", "HOME": "/x", "CUDA_VISIBLE_DEVICES": "0", "FIB_CACHE_PATH": "/c",
        "TRITON_INTERPRET": "1", "PYTHONPATH": "/a:/b", "HF_ENDPOINT": "https://example.org:8443/",
        "KEYBOARD": "us", "TOKENIZERS_PARALLELISM": "0", "PWD": "/x", "OLDPWD": "/y",
    }  # fmt: skip
    assert without_secrets(needed) == needed


def test_the_page_names_every_sign_of_a_secret_that_the_code_goes_by():
    page = (TESTS.parent / "docs" / "faults.md").read_text(encoding="utf-8")
    signs = re.findall(r"\b[A-Z][A-Z_]+\b|\b[A-Z]\w+=", without_secrets.__doc__ or "")
    assert {"TOKEN", "AUTH", "API_KEY", "Key="} <= set(signs)
    assert [sign for sign in signs if f"`{sign}`" not in page] == []


def test_a_worker_of_the_pool_starts_without_the_secrets_of_its_parent(tmp_path, monkeypatch):
    monkeypatch.setenv("TEAM_TOKEN", "hidden")
    monkeypatch.setenv("TEAM_NAME", "seen")
    script = "import os; print(sorted(k for k in os.environ if k.startswith('TEAM')), flush=True)"
    command = pool_module.WorkerCommand(argv=(room.sys.executable, "-c", script))
    with pool_module.Pool("cpu", tmp_path, command) as pool:
        outcome = pool.run(_job())
    assert outcome.log == "['TEAM_NAME']\n"


def _job():
    from harness.evaluate.protocol import Job, Settings

    settings = Settings(1, 1, 1, 0.01, 0.01, 1.0, 1, "host", 0)
    return Job("room", "{}", "{}", ".", {"uuid": "good-0"}, "cpu", settings)


# The registry


def test_every_fault_is_named_once_and_held_by_a_test_that_exists():
    names = [fault.name for fault in ALL_FAULTS]
    assert len(set(names)) == len(names) >= 30
    for fault in ALL_FAULTS:
        file, _, test = fault.held_by.partition("::")
        functions = ast.parse((TESTS / file).read_text()).body
        assert test in {getattr(node, "name", "") for node in functions}, fault.held_by
