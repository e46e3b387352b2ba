"""``harness doctor``: what this machine lacks for judging, one line a check."""

from __future__ import annotations

from collections.abc import Callable

import click

from harness.config import Workspace, load_workspace
from harness.devices import DeviceFacts, read_facts
from harness.doctor import Check, exit_code, run_checks
from harness.doctor import judge as judge_checks
from harness.doctor import machine as machine_checks
from harness.doctor.probe import TorchFacts, ask_torch


@click.command()
def doctor() -> int:
    """Check GPU, driver, timer, compiler, versions, evaluators, cache and data; change nothing.

    A failure has its remedy beside it. Ends with 0, or with 3 where something fails; 4 where only
    a tool is missing, 5 where only somebody else computes on the GPU.
    """
    workspace, facts = load_workspace(), read_facts()
    seen = []
    for check in run_checks(all_checks(workspace, facts, ask_torch(workspace.root))):
        click.echo(check.line)
        seen.append(check)
    return int(exit_code(seen))


def all_checks(
    workspace: Workspace, facts: DeviceFacts, torch: TorchFacts
) -> list[tuple[str, Callable[[], Check]]]:
    """Every check by its name, the machine's first."""
    machine, judge = machine_checks, judge_checks
    pins = judge.read_pins(workspace.root)
    folder, pin = judge.package_folder(), pins[judge.JUDGE_PACKAGE]
    return [
        ("gpu", lambda: machine.check_gpu(facts)),
        ("driver", lambda: machine.check_driver(facts, torch)),
        ("sharing", lambda: machine.check_sharing(facts)),
        ("clocks", lambda: machine.check_clocks(facts)),
        ("cupti", lambda: machine.check_cupti(facts, torch)),
        ("counters", lambda: machine.check_counters(facts)),
        ("nvcc", lambda: machine.check_compiler(facts, judge.native_rooms(workspace))),
        ("routes", lambda: judge.check_routes(workspace, facts)),
        ("packages", lambda: judge.check_packages(judge.read_dependencies(workspace.root))),
        ("versions", lambda: judge.check_versions(facts, pins)),
        ("peers", lambda: judge.check_peers(workspace)),
        ("evaluator", lambda: judge.check_evaluator(folder, pin)),
        ("judge", lambda: judge.check_identity(workspace)),
        ("evidence", lambda: judge.check_evidence(workspace, facts)),
        ("cache", judge.check_cache),
        ("traces", lambda: judge.check_ledgers(workspace)),
        ("dataset", lambda: judge.check_dataset(workspace)),
    ]
