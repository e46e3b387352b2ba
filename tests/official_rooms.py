"""The rooms of the contest's five definitions, whatever other rooms a checkout has."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from harness.config import Workspace, load_workspace

OFFICIAL_ROOMS = ("moe", "dsa_indexer", "dsa_attention", "gdn_decode", "gdn_prefill")
_TABLE = re.compile(r"^\[rooms\.(\w+)[^\n]*\n.*?(?=^\[|\Z)", re.MULTILINE | re.DOTALL)


def official_workspace(root: Path | None = None) -> Workspace:
    """The workspace with no other room."""
    whole = load_workspace(root)
    return replace(whole, rooms={name: whole.rooms[name] for name in OFFICIAL_ROOMS})


def official_config() -> str:
    """The text of config.toml without the tables of other rooms."""
    text = (load_workspace().root / "config.toml").read_text(encoding="utf-8")
    return _TABLE.sub(lambda match: match[0] if match[1] in OFFICIAL_ROOMS else "", text)
