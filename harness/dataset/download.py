"""The official data set, from Hugging Face, into a folder that the user names."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from harness.config import Workspace
from harness.errors import DatasetError, ToolMissing, UsageError
from harness.files import expand_home

REQUIREMENT = "huggingface_hub>=0.30"  # the extra dataset of pyproject.toml
_RESUMABLE = ".cache/huggingface"  # what the library leaves in a folder that it fills


def _load_hub() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ToolMissing(
            "huggingface_hub is not installed; `dataset fetch` needs it: "
            f"{shlex.quote(sys.executable)} -m pip install '{REQUIREMENT}'"
        ) from error


def _resolve(hub: Any, repository: str, revision: str) -> str:
    """The full commit hash. The Hub takes branches, tags and full hashes, but no short hashes."""
    if not re.fullmatch(r"[0-9a-f]{7,39}", revision):
        return revision
    commits = hub.HfApi().list_repo_commits(repository, repo_type="dataset")
    found = sorted({str(commit.commit_id) for commit in commits})
    matching = [commit for commit in found if commit.startswith(revision)]
    if len(matching) != 1:
        raise DatasetError(
            f"{repository}: expected one commit that starts with {revision}, got "
            f"{', '.join(matching) or 'none'} of {len(found)}; see [dataset] in config.toml"
        )
    return matching[0]


def _check_folder(workspace: Workspace, directory: Path) -> Path:
    directory = expand_home(directory).resolve()
    if directory == workspace.root or directory in workspace.root.parents:
        raise UsageError(
            f"{directory}: expected a folder of its own for the official set, got the checkout; "
            f"try {workspace.root / 'dataset'}"
        )
    if directory.exists() and not directory.is_dir():
        raise UsageError(f"{directory}: expected a folder, got a file")
    resumable = (directory / _RESUMABLE).is_dir()
    if directory.is_dir() and any(directory.iterdir()) and not resumable:
        raise UsageError(
            f"{directory}: expected an empty folder or a started download, got other files; "
            f"name another folder"
        )
    return directory


def fetch(workspace: Workspace, directory: Path, hub: Any = None) -> tuple[Path, str]:
    """Download definitions, workloads and blobs of the contest's rooms; resumes where it ended.

    hub: a module with huggingface_hub's HfApi and snapshot_download (default: that library).
    Returns the folder and the full revision. Raises ToolMissing where the library is not
    installed, UsageError for a folder in use, DatasetError where the Hub does not deliver.
    """
    directory = _check_folder(workspace, directory)
    hub = hub or _load_hub()
    patterns = []
    for room in workspace.contest_rooms.values():
        place = f"{room.op_type}/{room.definition}"
        patterns += [f"definitions/{place}.json", f"workloads/{place}.jsonl"]
        patterns += [f"blob/workloads/{place}/*"]
    try:
        repository = workspace.dataset_repository
        revision = _resolve(hub, repository, workspace.dataset_revision)
        hub.snapshot_download(
            repo_id=repository,
            repo_type="dataset",
            revision=revision,
            local_dir=str(directory),
            allow_patterns=list(dict.fromkeys(patterns)),  # rooms may share a definition
        )
    except DatasetError:
        raise
    except Exception as error:  # the library raises its own, requests' and the system's errors
        raise DatasetError(
            f"{workspace.dataset_repository}@{workspace.dataset_revision}: download into "
            f"{directory} failed: {type(error).__name__}: {error}; run the command again to resume"
        ) from error
    return directory, revision
