"""Tags of submissions: what they name, how they are numbered, and when they are pushed."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from harness.cli import main
from harness.cli import submit as command
from harness.config import load_workspace
from harness.errors import (
    EnvironmentUnfit,
    ExitCode,
    InfrastructureFailure,
    SubmissionRefused,
    ToolMissing,
)
from harness.packing import pack
from harness.submit import Tag, collect, make_tag, push_tag, require_clean
from harness.submit.tags import commit_tree, extract, next_tag
from tests.submission_checkout import commit_all, git, submission_checkout

ROOM, DEFINITION = "gdn_decode", "gdn_decode_qk4_v8_d128_k_last"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return submission_checkout(tmp_path_factory.mktemp("prepared") / "checkout")


@pytest.fixture
def checkout(prepared, tmp_path, monkeypatch):
    """A copy to tag; the command line works in it."""
    shutil.copytree(prepared.root, tmp_path / "checkout")
    workspace = load_workspace(tmp_path / "checkout")
    monkeypatch.setattr(command, "load_workspace", lambda: workspace)
    return workspace


@pytest.fixture
def remote(checkout, tmp_path):
    """A bare repository that the checkout calls origin."""
    git(tmp_path, "init", "--quiet", "--bare", "remote")
    git(checkout.root, "remote", "add", "origin", str(tmp_path / "remote"))
    return tmp_path / "remote"


@pytest.fixture
def repository(tmp_path):
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "--quiet")
    git(root, "config", "user.name", "Someone")
    git(root, "config", "user.email", "someone@example.org")
    (root / "file").write_text("1\n")
    git(root, "add", "file")
    git(root, "commit", "--quiet", "--message", "first")
    return root


def submit(capsys, *arguments):
    code = main(["submit", *map(str, arguments)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def hashes(workspace):
    return {room.definition: pack(workspace, name).sha256 for name, room in workspace.rooms.items()}


# What a tag names


def test_the_tag_names_a_commit_with_the_tree_and_leaves_all_else_alone(checkout, tmp_path, capsys):
    head = git(checkout.root, "rev-parse", "HEAD")
    branch = git(checkout.root, "symbolic-ref", "HEAD")
    code, out, err = submit(capsys, tmp_path / "out", "--tag")
    assert (code, err) == (ExitCode.OK, "")
    assert "tagged submission-v1: commit" in out
    assert "not pushed; `git push REMOTE refs/tags/submission-v1` submits it" in out
    listed = git(checkout.root, "ls-tree", "-r", "--name-only", "submission-v1").split()
    name = "submission-v1"
    kinds = git(checkout.root, "ls-tree", "-r", name).splitlines()
    assert {line[:12] for line in kinds} == {"100644 blob "}
    written = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert listed == sorted(path.relative_to(tmp_path / "out").as_posix() for path in written)
    assert git(checkout.root, "rev-parse", "submission-v1^{commit}^") == head
    assert git(checkout.root, "rev-parse", "HEAD") == head
    assert git(checkout.root, "symbolic-ref", "HEAD") == branch
    assert git(checkout.root, "status", "--porcelain") == ""
    assert git(checkout.root, "cat-file", "-t", "submission-v1") == "tag\n"


def test_export_push_clone_collect_gives_the_same_content(checkout, remote, tmp_path, capsys):
    """What the organisers do: clone, check the tag out, collect."""
    code, out, _ = submit(capsys, tmp_path / "out", "--tag", "--push")
    assert (code, "pushed submission-v1 to origin" in out) == (ExitCode.OK, True)
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/tags/submission-v1\n"
    git(tmp_path, "clone", "--quiet", "--branch", "submission-v1", str(remote), "theirs")
    found = collect(tmp_path / "theirs")
    assert {one.definition: one.sha256 for one in found} == hashes(checkout)


def test_no_rule_about_line_ends_touches_the_sources(checkout, tmp_path, capsys):
    git(checkout.root, "config", "core.autocrlf", "true")
    (checkout.root / ".gitattributes").write_text("* text eol=crlf\n")
    commit_all(checkout)
    code, _, err = submit(capsys, tmp_path / "out", ROOM, "--single", "--tag")
    assert (code, err) == (ExitCode.OK, "")
    path = "submission-v1:solution/triton/kernel.py"
    data = subprocess.check_output(["git", "cat-file", "blob", path], cwd=checkout.root)
    assert data == (checkout.root / "solutions" / ROOM / "kernel.py").read_bytes()


# Numbers


def test_the_next_number_is_above_every_earlier_one(repository):
    assert next_tag(repository, None, None) == "submission-v1"
    for name in ("submission-v2", "submission-v10", "submission-v3-draft", "submission-final"):
        git(repository, "tag", name)
    assert next_tag(repository, None, None) == "submission-v11"
    assert next_tag(repository, DEFINITION, None) == f"submission-{DEFINITION}-v1"
    git(repository, "tag", f"submission-{DEFINITION}-v4")
    assert next_tag(repository, DEFINITION, None) == f"submission-{DEFINITION}-v5"
    assert next_tag(repository, None, None) == "submission-v11"


def test_tags_of_the_remote_count_where_it_is_pushed_to(checkout, remote, tmp_path, capsys):
    git(checkout.root, "tag", "--annotate", "--message", "theirs", "submission-v6")
    git(checkout.root, "push", "--quiet", "origin", "refs/tags/submission-v6")
    git(checkout.root, "tag", "--delete", "submission-v6")
    code, out, _ = submit(capsys, tmp_path / "out", ROOM, "--single", "--tag", "--push", "origin")
    assert (code, "pushed submission-v7 to origin" in out) == (ExitCode.OK, True)


def test_single_definitions_may_be_numbered_by_themselves(checkout, tmp_path, capsys):
    options = ("--single", "--tag", "--per-definition")
    for number, room in ((1, ROOM), (2, ROOM), (1, "moe")):
        code, out, _ = submit(capsys, tmp_path / f"{room}{number}", room, *options)
        definition = checkout.room(room).definition
        assert (code, f"tagged submission-{definition}-v{number}:" in out) == (ExitCode.OK, True)


def test_a_tag_is_never_overwritten(repository):
    commit = git(repository, "rev-parse", "HEAD").strip()
    make_tag(repository, Tag("submission-v1", commit), "one")
    before = git(repository, "rev-parse", "submission-v1")
    with pytest.raises(SubmissionRefused, match="never overwritten"):
        make_tag(repository, Tag("submission-v1", commit), "two")
    assert git(repository, "rev-parse", "submission-v1") == before


def test_a_push_does_not_replace_what_the_remote_has(checkout, remote):
    first = git(checkout.root, "rev-parse", "HEAD").strip()
    make_tag(checkout.root, Tag("submission-v1", first), "one")
    push_tag(checkout.root, Tag("submission-v1", first), "origin")
    theirs = git(remote, "rev-parse", "submission-v1")
    git(checkout.root, "tag", "--delete", "submission-v1")
    second = commit_all(checkout)
    make_tag(checkout.root, Tag("submission-v1", second), "two")
    with pytest.raises(InfrastructureFailure, match="is made here and not pushed") as caught:
        push_tag(checkout.root, Tag("submission-v1", second), "origin")
    assert "git push origin refs/tags/submission-v1" in str(caught.value)
    assert git(remote, "rev-parse", "submission-v1") == theirs


# Git itself


def test_files_of_a_commit_come_back_as_they_went_in(repository, tmp_path):
    files = {"a/b.py": b"x = 1\n", "c": b"no newline", "d e": "é\r\n".encode()}
    head = git(repository, "rev-parse", "HEAD").strip()
    commit = commit_tree(repository, files, head, "tree")
    (tmp_path / "there").mkdir()
    extract(repository, commit, tmp_path / "there")
    found = [path for path in (tmp_path / "there").rglob("*") if path.is_file()]
    assert files == {
        path.relative_to(tmp_path / "there").as_posix(): path.read_bytes() for path in found
    }


def test_a_folder_without_a_repository_is_unfit(tmp_path, monkeypatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(EnvironmentUnfit, match="git status"):
        require_clean(tmp_path)


def test_without_git_the_message_names_it(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match="git: not installed"):
        require_clean(repository)
