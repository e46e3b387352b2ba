"""The commit whose tree is a submission, its tag, and the push. Only git is called.

The working tree, the index and the branch stay as they are: the commit is made from objects, with
the commit that the submission was made from as its parent, and only the tag leads to it.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.errors import (
    EnvironmentUnfit,
    InfrastructureFailure,
    SubmissionRefused,
    ToolMissing,
    UsageError,
)
from harness.evaluate.sweep import git_environment

TAG = "submission-v{number}"
DEFINITION_TAG = "submission-{definition}-v{number}"
_SHOWN_PATHS = 5
_NUMBER = r"([0-9]{1,9})"  # longer ones are nobody's count, and int() refuses thousands of digits
_REGULAR_MODES = ("100644", "100755")


@dataclass(frozen=True)
class Tag:
    """A tag that does not exist yet, and the commit to put it on."""

    name: str
    commit: str


def require_clean(root: Path) -> str:
    """The commit that the checkout stands on.

    Raises SubmissionRefused where git sees a difference from it: nobody could rebuild what is
    submitted. Raises ToolMissing or EnvironmentUnfit without git or a repository of its own.
    """
    top = Path(_git(root, "rev-parse", "--show-toplevel").removesuffix("\n"))
    if top.resolve() != root.resolve():
        raise EnvironmentUnfit(
            f"{root}: expected the top of a git repository, got a folder inside {top}, whose "
            "commits need not hold it; clone the checkout as a repository of its own"
        )
    changed = _git(root, "status", "--porcelain", "--untracked-files=normal").splitlines()
    if changed:
        shown = ", ".join(line[3:] for line in changed[:_SHOWN_PATHS])
        more = f" and {len(changed) - _SHOWN_PATHS} more" if len(changed) > _SHOWN_PATHS else ""
        raise SubmissionRefused(
            f"{root}: expected a clean working tree, got changes in {shown}{more}; "
            "commit them first"
        )
    return _git(root, "rev-parse", "HEAD").strip()


def require_committed(root: Path, commit: str, files: Mapping[str, bytes]) -> None:
    """Compare what was read with what the commit holds. files: path below root -> bytes.

    git status passes over files that are ignored, assumed unchanged or left out of the working
    tree. Raises SubmissionRefused unless each path is a regular file there, with these bytes.
    """
    listing = _git(root, "ls-tree", "-r", "-z", "--full-tree", commit)
    held = {}
    for line in listing.split("\0")[:-1]:
        about, _, path = line.partition("\t")
        mode, _, blob = about.split(" ")
        held[path] = (mode, blob)
    differing = []
    for path, data in sorted(files.items()):
        mode, blob = held.get(path, ("", ""))
        if mode not in _REGULAR_MODES:
            differing.append(f"{path} ({'no regular file' if mode else 'missing'} there)")
        elif blob != _git(root, "hash-object", "--no-filters", "--stdin", data=data).strip():
            differing.append(f"{path} (other bytes there)")
    if differing:
        shown = ", ".join(differing[:_SHOWN_PATHS])
        more = f" and {len(differing) - _SHOWN_PATHS} more" if differing[_SHOWN_PATHS:] else ""
        raise SubmissionRefused(
            f"{root}: expected files as commit {commit} holds them, got {shown}{more}; commit "
            "them, and see `git ls-files -v` and `git check-ignore -v` for why status is silent"
        )


def commit_tree(root: Path, files: Mapping[str, bytes], parent: str, message: str) -> str:
    """A commit of exactly these files. No filter, attribute or line-end rule touches them."""
    with tempfile.TemporaryDirectory(prefix="harness-submit-") as folder:
        index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
        lines = []
        for name, data in sorted(files.items()):
            blob = _git(root, "hash-object", "-w", "--no-filters", "--stdin", data=data).strip()
            lines.append(f"100644 {blob}\t{name}\n")
        _git(root, "update-index", "--add", "--index-info", data="".join(lines).encode(), env=index)
        tree = _git(root, "write-tree", env=index).strip()
    return _git(root, "commit-tree", tree, "-p", parent, "-F", "-", data=message.encode()).strip()


def extract(root: Path, commit: str, folder: Path) -> None:
    """Lay a commit's tree into an empty folder, byte for byte."""
    as_stored = ("-c", "core.autocrlf=false")  # archive would apply this machine's line ends
    archive = _git_bytes(root, *as_stored, "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")


def next_tag(root: Path, definition: str | None, remote: str | None) -> str:
    """submission-v<N>, or submission-<definition>-v<N>: one above the highest number that this
    repository, and the remote where one is named, ever tagged so."""
    pattern = DEFINITION_TAG if definition else TAG
    stem = pattern.format(definition=definition, number="")
    names = _git(root, "tag", "--list", f"{stem}*").split()
    if remote is not None:
        for address in _push_addresses(root, remote):
            listed = _git(root, "ls-remote", "--tags", address, f"refs/tags/{stem}*").splitlines()
            names += [line.split("refs/tags/")[1].removesuffix("^{}") for line in listed]
    numbers = [
        int(match[1]) for name in names if (match := re.fullmatch(re.escape(stem) + _NUMBER, name))
    ]
    return f"{stem}{max(numbers, default=0) + 1}"


def make_tag(root: Path, tag: Tag, message: str) -> None:
    """Make an annotated tag. Raises SubmissionRefused where one of that name exists: a tag that
    was submitted is never moved."""
    try:
        if not _git(root, "tag", "--list", tag.name).strip():
            _git(root, "tag", "--annotate", "--file=-", tag.name, tag.commit, data=message.encode())
            return
    except EnvironmentUnfit:
        if not _git(root, "tag", "--list", tag.name).strip():
            raise
    raise SubmissionRefused(
        f"{tag.name}: exists already, and tags are never overwritten; run the command again, which "
        "takes the next number"
    )


def require_remote(root: Path, remote: str) -> None:
    """Raises UsageError unless git knows the remote."""
    known = _git(root, "remote").split()
    if remote not in known:
        raise UsageError(
            f"--push: expected a remote of this repository ({', '.join(known) or 'it has none'}), "
            f"got {remote!r}; `git remote add` makes one"
        )


def remote_url(root: Path, remote: str) -> str:
    """Where git pushes to, without the user's name and password."""
    return _without_credentials(", ".join(_push_addresses(root, remote)))


def _without_credentials(text: str) -> str:
    return re.sub(r"(?<=://)[^/@\s]*@", "", text)


def _push_addresses(root: Path, remote: str) -> list[str]:
    """A remote may be pushed to elsewhere than it is fetched from, and to several places."""
    return _git(root, "remote", "get-url", "--push", "--all", remote).splitlines()


def push_tag(root: Path, tag: Tag, remote: str) -> None:
    """Push one tag and nothing else, without force. Raises InfrastructureFailure.

    push.followTags would push every tag that the commit's parents bear.
    """
    refspec = f"refs/tags/{tag.name}:refs/tags/{tag.name}"
    try:
        _git(root, "push", "--no-follow-tags", remote, refspec)
    except EnvironmentUnfit as error:
        raise InfrastructureFailure(
            f"{tag.name} is made here and not pushed: {error}; then run `git push {remote} "
            f"refs/tags/{tag.name}`"
        ) from error


def _git(
    root: Path, *arguments: str, data: bytes = b"", env: Mapping[str, str] | None = None
) -> str:
    return _git_bytes(root, *arguments, data=data, env=env).decode("utf-8", "replace")


def _git_bytes(
    root: Path, *arguments: str, data: bytes = b"", env: Mapping[str, str] | None = None
) -> bytes:
    """git's standard output. Raises ToolMissing without git, EnvironmentUnfit with its words."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=root,
            input=data,
            capture_output=True,
            env={**git_environment(), **(env or {})},
        )
    except FileNotFoundError as error:
        raise ToolMissing("git: not installed; submissions are tags, which it makes") from error
    if done.returncode != 0:
        words = " ".join(done.stderr.decode("utf-8", "replace").split())
        said = f"git {' '.join(arguments[:3])}: {words or f'exit code {done.returncode}'}"
        raise EnvironmentUnfit(_without_credentials(said))
    return done.stdout
