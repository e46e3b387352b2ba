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
from harness.records import write_latest
from harness.submit import (
    Tag,
    choose_rooms,
    collect,
    make_tag,
    origins,
    prepare,
    push_tag,
    require_clean,
    require_committed,
    tags,
)
from harness.submit.tags import commit_tree, extract, next_tag, remote_url
from tests.submission_checkout import commit_all, git, submission_checkout, sweep, write_audit

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
    assert code == ExitCode.OK
    said = out.index(f"pushing to origin ({remote}), as no remote was named; --push REMOTE names")
    assert said < out.index(f"pushed submission-v1 to origin ({remote})")
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
    assert (code, f"pushed submission-v7 to origin ({remote})" in out) == (ExitCode.OK, True)
    assert "no remote was named" not in out


def test_tags_count_where_the_tag_is_pushed_to_not_where_it_is_fetched_from(
    checkout, remote, tmp_path, capsys
):
    git(tmp_path, "init", "--quiet", "--bare", "contest")
    git(checkout.root, "push", "--quiet", str(tmp_path / "contest"), "HEAD:refs/tags/submission-v6")
    git(checkout.root, "remote", "set-url", "--push", "origin", str(tmp_path / "contest"))
    code, out, _ = submit(capsys, tmp_path / "out", ROOM, "--single", "--tag", "--push", "origin")
    assert (code, f"submission-v7 to origin ({tmp_path / 'contest'})" in out) == (ExitCode.OK, True)


def test_one_tag_is_pushed_whatever_git_would_add(checkout, remote, tmp_path, capsys):
    git(checkout.root, "tag", "--annotate", "--message", "ours", "release-1")
    git(checkout.root, "config", "push.followTags", "true")
    code, *_ = submit(capsys, tmp_path / "out", ROOM, "--single", "--tag", "--push", "origin")
    assert (code, git(remote, "tag").split()) == (ExitCode.OK, ["submission-v1"])


def test_a_failure_does_not_show_the_password_in_an_address(repository):
    git(repository, "remote", "add", "contest", "https://me:hidden@localhost:1/kernels.git")
    with pytest.raises(EnvironmentUnfit) as refused:
        next_tag(repository, None, "contest")
    assert "localhost:1" in str(refused.value) and "hidden" not in str(refused.value)


def test_a_remote_is_shown_without_the_password_in_its_address(repository):
    git(repository, "remote", "add", "contest", "https://me:hidden@example.org/kernels.git")
    assert remote_url(repository, "contest") == "https://example.org/kernels.git"


def test_single_definitions_may_be_numbered_by_themselves(checkout, tmp_path, capsys):
    options = ("--single", "--tag", "--per-definition")
    for number, room in ((1, ROOM), (2, ROOM), (1, "moe")):
        code, out, _ = submit(capsys, tmp_path / f"{room}{number}", room, *options)
        definition = checkout.room(room).definition
        assert (code, f"tagged submission-{definition}-v{number}:" in out) == (ExitCode.OK, True)


def test_a_number_that_nobody_counted_to_is_passed_over(repository):
    head = git(repository, "rev-parse", "HEAD").strip()
    packed = repository / ".git" / "packed-refs"
    packed.write_text(
        "# pack-refs with: peeled fully-peeled sorted \n"
        f"{head} refs/tags/submission-v3\n{head} refs/tags/submission-v{'9' * 5000}\n"
    )
    assert len(git(repository, "tag", "--list")) > 5000
    assert next_tag(repository, None, None) == "submission-v4"


def without_identity(root):
    git(root, "config", "--unset", "user.name")
    git(root, "config", "--unset", "user.email")
    git(root, "config", "user.useConfigOnly", "true")


def without_signing(root):
    git(root, "config", "tag.gpgSign", "true")
    git(root, "config", "gpg.program", "false")


@pytest.mark.parametrize("existed", [False, True], ids=["new folder", "empty folder"])
@pytest.mark.parametrize("spoil", [without_identity, without_signing])
def test_a_failed_tag_leaves_the_folder_free(
    checkout, tmp_path, capsys, monkeypatch, spoil, existed
):
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "EMAIL"):
        monkeypatch.delenv(name, raising=False)
    out = tmp_path / "out"
    if existed:
        out.mkdir()
    config = (checkout.root / ".git" / "config").read_text()
    spoil(checkout.root)
    code, shown, err = submit(capsys, out, ROOM, "--single", "--tag")
    assert (code, shown) == (ExitCode.UNFIT, ""), err
    assert git(checkout.root, "tag", "--list") == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkout"] + ["out"] * existed
    assert not existed or list(out.iterdir()) == []
    (checkout.root / ".git" / "config").write_text(config)
    assert submit(capsys, out, ROOM, "--single", "--tag")[0] == ExitCode.OK


def test_a_tag_is_never_overwritten(repository):
    commit = git(repository, "rev-parse", "HEAD").strip()
    make_tag(repository, Tag("submission-v1", commit), "one")
    before = git(repository, "rev-parse", "submission-v1")
    with pytest.raises(SubmissionRefused, match="never overwritten; run the command again"):
        make_tag(repository, Tag("submission-v1", commit), "two")
    assert git(repository, "rev-parse", "submission-v1") == before


def test_a_tag_that_another_run_makes_first_is_refused_alike(repository, monkeypatch):
    tag, real = Tag("submission-v1", git(repository, "rev-parse", "HEAD").strip()), tags._git

    def overtaken(root, *arguments, **others):
        found = real(root, *arguments, **others)
        if arguments[:2] == ("tag", "--list") and not found:
            git(root, "tag", tag.name)
        return found

    monkeypatch.setattr(tags, "_git", overtaken)
    with pytest.raises(SubmissionRefused, match="run the command again"):
        make_tag(repository, tag, "two")


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


def test_a_folder_without_a_repository_is_unfit(tmp_path):
    with pytest.raises(EnvironmentUnfit, match="git rev-parse --show-toplevel"):
        require_clean(tmp_path)


def test_a_checkout_inside_another_repository_is_unfit(repository):
    """There, an ignored checkout looks clean and no commit holds it."""
    (repository / "inner").mkdir()
    (repository / ".git" / "info" / "exclude").write_text("/inner/\n")
    (repository / "inner" / "kernel.py").write_text("1\n")
    with pytest.raises(EnvironmentUnfit, match="expected the top of a git repository"):
        require_clean(repository / "inner")


def test_a_hook_s_variables_do_not_lead_to_another_repository(repository, tmp_path, monkeypatch):
    git(tmp_path, "init", "--quiet", "elsewhere")
    head = git(repository, "rev-parse", "HEAD").strip()
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere" / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(repository))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    assert require_clean(repository) == head


def test_who_tags_may_come_from_the_environment(repository, monkeypatch):
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Somebody Else")
    commit = commit_tree(
        repository, {"a": b"1\n"}, git(repository, "rev-parse", "HEAD").strip(), ""
    )
    assert git(repository, "log", "-1", "--format=%an", commit) == "Somebody Else\n"


KERNEL = f"solutions/{ROOM}/kernel.py"


def skip_in_worktree(root):
    git(root, "update-index", "--skip-worktree", KERNEL)


def assume_unchanged(root):
    git(root, "update-index", "--assume-unchanged", KERNEL)


def ignore(root):
    (root / ".git" / "info" / "exclude").write_text(f"/{KERNEL}\n")
    git(root, "rm", "--quiet", "--cached", KERNEL)
    git(root, "commit", "--quiet", "--message", "without the kernel")


def commit_a_link(root):
    blob = git(root, "rev-parse", f"HEAD:{KERNEL}").strip()
    git(root, "update-index", "--cacheinfo", f"120000,{blob},{KERNEL}")
    git(root, "commit", "--quiet", "--message", "a link")
    skip_in_worktree(root)


@pytest.mark.parametrize(
    ("hide", "words"),
    [
        (skip_in_worktree, "other bytes there"),
        (assume_unchanged, "other bytes there"),
        (ignore, "missing there"),
        (commit_a_link, "no regular file there"),
    ],
)
def test_what_status_passes_over_is_refused(checkout, tmp_path, capsys, hide, words):
    hide(checkout.root)
    if words == "other bytes there":
        kernel = checkout.root / KERNEL
        kernel.write_text(kernel.read_text() + "\n# later\n")
        write_latest(sweep(checkout, ROOM), checkout.root)
        write_audit(checkout, ROOM)
        git(checkout.root, "add", "results")
        git(checkout.root, "commit", "--quiet", "--message", "evidence of the hidden bytes")
    assert git(checkout.root, "status", "--porcelain") == ""
    code, out, err = submit(capsys, tmp_path / "out", ROOM)
    assert (code, out) == (ExitCode.FAILED, "")
    assert f"got {KERNEL} ({words})" in err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "path", ["config.toml", f"solutions/{ROOM}/config.toml", "solutions/common/arguments.py"]
)
def test_settings_and_the_shelf_are_compared_too(checkout, path):
    files = origins(checkout.root, prepare(checkout, choose_rooms(checkout, [ROOM, "moe"])))
    head = git(checkout.root, "rev-parse", "HEAD").strip()
    require_committed(checkout.root, head, files)
    with pytest.raises(SubmissionRefused, match=rf"got {path} \(other bytes there\); commit"):
        require_committed(checkout.root, head, {**files, path: files[path] + b"\n"})


def test_without_git_the_message_names_it(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolMissing, match="git: not installed"):
        require_clean(repository)
