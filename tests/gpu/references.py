"""The definitions' own references, built as the judge builds them."""

from functools import cache

from harness.config import load_workspace


@cache
def reference(room):
    """The reference of a room's definition: called with the inputs, it returns the outputs."""
    from flashinfer_bench.compile import BuilderRegistry
    from flashinfer_bench.data import Definition

    workspace = load_workspace()
    entry = workspace.room(room)
    path = workspace.root / "definitions" / entry.op_type / f"{entry.definition}.json"
    definition = Definition.model_validate_json(path.read_text())
    return BuilderRegistry.get_instance().build_reference(definition)
