"""From rooms to what the contest collects: a tree, a tag, and the proof that both hold.

    contest     the official definitions
    readiness   what each room submits, its evidence, and every objection to it
    tree        the files of a submission, and their folder
    collector   an imitation of the organisers' collection, and the check of a tree against it
    tags        a commit whose tree is the submission, its tag, and the push

The contest reads a tag: it checks it out, looks for config.toml at the root and in its immediate
sub-folders, and packs solution/<language>/ beside each (starter kit, EVALUATION.md and FAQ.md of
March 2026). The config.toml of this checkout's root would be taken for a solution, so that a tag of
it cannot be submitted. A submission is therefore a tree of its own, and its tag names a commit with
that tree, whose parent is the commit that it was made from.
"""

from harness.submit.collector import Collected, check_tree, collect
from harness.submit.contest import CONTEST_DEFINITIONS, choose_rooms
from harness.submit.readiness import Entry, prepare
from harness.submit.tags import Tag, make_tag, push_tag, require_clean, require_committed
from harness.submit.tree import origins, submission_files, write_tree

__all__ = [
    "CONTEST_DEFINITIONS",
    "Collected",
    "Entry",
    "Tag",
    "check_tree",
    "choose_rooms",
    "collect",
    "make_tag",
    "origins",
    "prepare",
    "push_tag",
    "require_clean",
    "require_committed",
    "submission_files",
    "write_tree",
]
