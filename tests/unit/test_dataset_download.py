"""fetch, against a stand-in for the Hub that serves a folder of this machine."""

from __future__ import annotations

import fnmatch
import shutil
import sys
import types
from pathlib import Path

import pytest

from harness import dataset
from harness.dataset.download import REQUIREMENT
from harness.errors import DatasetError, ToolMissing, UsageError
from tests.small_checkout import small_checkout

ROOT = Path(__file__).resolve().parents[2]
FULL = "5e832ce8" + "0" * 32


class StandIn(types.ModuleType):
    """What `fetch` uses of huggingface_hub: HfApi().list_repo_commits and snapshot_download."""

    def __init__(self, served, commits=(FULL, "a" * 40)):
        super().__init__("huggingface_hub")
        self.served, self.commits, self.calls, self.fail_after = served, commits, [], None

    def HfApi(self):
        return self

    def list_repo_commits(self, repo_id, *, repo_type):
        assert repo_type == "dataset"
        return [types.SimpleNamespace(commit_id=commit) for commit in self.commits]

    def snapshot_download(self, *, repo_id, repo_type, revision, local_dir, allow_patterns):
        self.calls.append((repo_id, repo_type, revision))
        marker = Path(local_dir) / ".cache" / "huggingface"
        marker.mkdir(parents=True, exist_ok=True)
        copied = 0
        for path in sorted(self.served.rglob("*")):
            name = path.relative_to(self.served).as_posix()
            if path.is_dir() or not any(fnmatch.fnmatch(name, rule) for rule in allow_patterns):
                continue
            target = Path(local_dir) / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
            copied += 1
            if copied == self.fail_after:
                raise ConnectionError("the line went dead")
        return local_dir


@pytest.fixture
def workspace(tmp_path):
    small = small_checkout(tmp_path / "checkout")
    dataset.make(small.root, small.rooms, jobs=1)
    return small


@pytest.fixture
def hub(workspace, tmp_path):
    served = tmp_path / "served"
    shutil.copytree(workspace.root, served)
    (served / "solutions").mkdir()
    (served / "solutions" / "theirs.json").write_text("{}")
    return StandIn(served)


def test_fetch_takes_the_pinned_revision_and_only_our_rooms(workspace, hub, tmp_path):
    folder, revision = dataset.fetch(workspace, tmp_path / "official", hub)
    assert revision == FULL
    assert hub.calls == [("flashinfer-ai/mlsys26-contest", "dataset", FULL)]
    assert not (folder / "solutions").exists() and not (folder / "config.toml").exists()
    assert not dataset.is_checkout(folder)
    verdict = dataset.verify(folder, workspace.rooms.values())
    assert verdict.faults == () and verdict.checked == 11
    assert dataset.locate(workspace, folder) == folder


def test_an_interrupted_fetch_resumes(workspace, hub, tmp_path):
    hub.fail_after = 3
    with pytest.raises(DatasetError, match="again to resume"):
        dataset.fetch(workspace, tmp_path / "official", hub)
    hub.fail_after = None
    folder, _ = dataset.fetch(workspace, tmp_path / "official", hub)
    assert dataset.verify(folder, workspace.rooms.values()).faults == ()


@pytest.mark.parametrize("commits", [(), (FULL, "5e832ce8" + "1" * 32)])
def test_the_pinned_revision_must_be_one_commit(workspace, hub, tmp_path, commits):
    hub.commits = commits
    with pytest.raises(DatasetError, match="expected one commit"):
        dataset.fetch(workspace, tmp_path / "official", hub)
    assert hub.calls == []


def test_folders_in_use_are_refused(workspace, hub, tmp_path):
    used = tmp_path / "used"
    used.mkdir()
    (used / "thesis.txt").write_text("mine")
    for folder in (used, workspace.root, workspace.root.parent, used / "thesis.txt"):
        with pytest.raises(UsageError):
            dataset.fetch(workspace, folder, hub)
    assert hub.calls == []
    assert sorted(path.name for path in used.iterdir()) == ["thesis.txt"]


def test_without_the_library_the_command_that_installs_it_is_named(
    workspace, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    monkeypatch.setattr(sys, "executable", "/my env/bin/python")
    with pytest.raises(ToolMissing) as caught:
        dataset.fetch(workspace, tmp_path / "official")
    command = "'/my env/bin/python' -m pip install 'huggingface_hub>=0.30'"
    assert str(caught.value).endswith(command)
    assert f'dataset = ["{REQUIREMENT}"]' in (ROOT / "pyproject.toml").read_text()


def test_the_library_is_found_by_its_name(workspace, hub, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    dataset.fetch(workspace, tmp_path / "official")
    assert len(hub.calls) == 1
