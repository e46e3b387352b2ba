"""Builds definitions/<op_type>/<name>.json from the readable reference beside it.

    python scripts/make_definitions.py [--check]     --check writes nothing and exits 1 on drift

In the .py, `DEFINITION = {...}` is a literal with the schema's fields. The JSON's `reference` is
the executable part: the imports and all that follows that literal. Nothing is imported or run.
"""

import argparse
import ast
import json
import os
import sys
from pathlib import Path

DEFINITIONS = Path(__file__).resolve().parents[1] / "definitions"


def build(path: Path) -> str:
    """The JSON text of one definition module. Exits with 2 where DEFINITION is missing."""
    text, imports = path.read_text(encoding="utf-8"), []
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            imports.append(ast.unparse(node))
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DEFINITION":
            rest = "\n".join(text.split("\n")[node.end_lineno :]).strip("\n")
            reference = "\n".join(imports) + "\n\n\n" + rest + "\n"
            fields = {**ast.literal_eval(node.value), "reference": reference}
            return json.dumps(fields, indent=2) + "\n"
    sys.stderr.write(f"{path}: expected `DEFINITION = {{...}}` after the imports, found none\n")
    sys.exit(2)


def write(target: Path, text: str) -> None:
    temporary = target.with_suffix(".json.partial")
    with temporary.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    temporary.replace(target)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Build the definitions' JSON files.")
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check, drifted = parser.parse_args(arguments).check, False
    for path in sorted(DEFINITIONS.glob("*/*.py")):
        text, target = build(path), path.with_suffix(".json")
        if target.is_file() and target.read_text(encoding="utf-8") == text:
            continue
        drifted = True
        print(f"{target}: out of date;", "run scripts/make_definitions.py" if check else "written")
        if not check:
            write(target, text)
    return int(check and drifted)


if __name__ == "__main__":
    sys.exit(main())
