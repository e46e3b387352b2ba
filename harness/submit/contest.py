"""The definitions that the contest judges, and which rooms answer them."""

from __future__ import annotations

from collections.abc import Sequence

from harness.config import Room, Workspace
from harness.errors import UsageError

CONTEST_DEFINITIONS = (
    "moe_fp8_block_scale_ds_routing_topk8_ng8_kg4_e32_h7168_i2048",
    "dsa_topk_indexer_fp8_h64_d128_topk2048_ps64",
    "dsa_sparse_attention_h16_ckv512_kpe64_topk2048_ps64",
    "gdn_decode_qk4_v8_d128_k_last",
    "gdn_prefill_qk4_v8_d128_k_last",
)


def choose_rooms(workspace: Workspace, names: Sequence[str], single: bool = False) -> list[Room]:
    """The rooms to submit, in the order of config.toml; without names, those of the contest.

    Raises UsageError for a room that is not in the contest, for two rooms with one definition, and
    for several rooms where a single one is to be submitted.
    """
    asked = {name: workspace.room(name) for name in names} or workspace.contest_rooms
    rooms = [room for room in workspace.rooms.values() if room.name in asked]
    for room in rooms:
        if not room.in_contest and room.definition in CONTEST_DEFINITIONS:
            raise UsageError(
                f"{room.name}: expected a track in config.toml, as of a room of the contest, got "
                f"none; give it one, or leave {room.name} out"
            )
        if not room.in_contest or room.definition not in CONTEST_DEFINITIONS:
            raise UsageError(
                f"{room.name}: expected one of the contest's definitions, got {room.definition!r}; "
                f"nobody there would judge it. Leave {room.name} out"
            )
    by_definition: dict[str, str] = {}
    for room in rooms:
        other = by_definition.setdefault(room.definition, room.name)
        if other != room.name:
            raise UsageError(
                f"{room.definition}: expected one room, got {other} and {room.name}; name the "
                "rooms to submit"
            )
    if not rooms:
        raise UsageError("config.toml: expected a room with a track, which is one of the contest")
    if single and len(rooms) > 1:
        known = ", ".join(room.name for room in rooms)
        raise UsageError(f"--single: expected one room, got {known}; name the one to submit")
    return rooms
