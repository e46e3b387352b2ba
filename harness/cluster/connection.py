"""Reaching a cluster, and what its workers must have in common."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harness.cluster.worker import Fingerprint, Worker, own_checkout, sources_sha256
from harness.errors import EnvironmentUnfit, HarnessError, ToolMissing

PROBE_LIMIT_S = 5.0


def load_ray() -> Any:
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise ToolMissing(
            f"--engine ray: expected the package ray, got {error}; install the extra `cluster` "
            "(docs/scale.md)"
        ) from error
    return ray


def connect(ray: Any, **options: Any) -> None:
    """Join the cluster of RAY_ADDRESS or of this machine, or start one. options: for ray.init.

    Raises EnvironmentUnfit where none can be reached.
    """
    address = options.get("address") or os.environ.get("RAY_ADDRESS", "")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # of a cluster started here, as the path
    paths = [str(own_checkout()), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in dict.fromkeys(paths) if path)
    try:
        _probe(address)
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="ERROR", **options)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        raise EnvironmentUnfit(
            f"cluster: expected a Ray cluster at {address or 'this machine'}, got "
            f"{first_line(error)}; `ray status` there says whether it runs"
        ) from error


def _probe(address: str) -> None:
    """Raises OSError where nobody listens at host:port: Ray itself tries for minutes, and prints
    its protocol's errors."""
    host, colon, port = address.rpartition(":")
    if colon and "://" not in address:
        socket.create_connection((host.strip("[]"), port), timeout=PROBE_LIMIT_S).close()


def located(ray: Any) -> type:
    """A Worker that also says which node it is on."""

    class LocatedWorker(Worker):
        def open_here(self) -> tuple[Fingerprint, str]:
            return self.open(), ray.get_runtime_context().get_node_id()

    return LocatedWorker


def agree(prints: Iterable[Fingerprint], root: Path) -> Fingerprint:
    """The one kind of all workers. root: the driver's checkout.

    Raises EnvironmentUnfit for a mixture or another judge than the driver's.
    """
    kinds: dict[Any, list[Fingerprint]] = {}
    for each in prints:
        kinds.setdefault(each.alike(), []).append(each)
    if len(kinds) > 1:
        names = "; ".join(
            f"{of[0].facts.name}, driver {of[0].facts.driver}, on "
            f"{', '.join(sorted({one.host for one in of}))}"
            for of in kinds.values()
        )
        raise EnvironmentUnfit(
            f"cluster: expected workers that are alike, got {len(kinds)} kinds ({names}): other "
            "devices, drivers, libraries or judges never share a table; stop Ray on the hosts "
            "that are to be left out"
        )
    common = next(iter(kinds.values()))[0]
    if common.judge_sha256 != sources_sha256(root):
        raise EnvironmentUnfit(
            f"cluster: expected the driver's judge on {common.host}, got another one; check out "
            "one commit on every host"
        )
    return common


def refusal(error: Exception) -> HarnessError:
    """What a worker raised, as the driver raises it."""
    cause = getattr(error, "cause", None)
    if isinstance(cause, HarnessError):
        return cause
    return EnvironmentUnfit(f"cluster: a worker could not begin: {first_line(error)}")


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
