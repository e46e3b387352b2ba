"""The entry point: does it exist, and does it take what the evaluator will pass?

flashinfer-bench calls it positionally with the definition's inputs, and with its outputs behind
them where destination_passing_style is true. 0.1.2 counts parameters exactly, and a return
annotation of several outputs can fail its build.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from harness.config import SolutionConfig
from harness.errors import PackingError
from harness.packing.definitions import Signature
from harness.packing.folders import C_SUFFIXES, Source, SourceTree
from harness.packing.python_source import bound_names, parse, top_level
from harness.packing.solution_config import COMPILED_LANGUAGES, key_error

FLAG = "destination_passing_style"


def parse_entry_point(tree: SourceTree, config: SolutionConfig) -> tuple[str, str]:
    """File name and symbol of `file::symbol`. Raises ConfigError with the right form."""
    root = tree.root
    suffixes = C_SUFFIXES if config.language in COMPILED_LANGUAGES else (".py",)
    file_name, separator, symbol = config.entry_point.partition("::")
    stem = file_name.rpartition(".")[0]
    fits = (
        separator
        and symbol.isidentifier()
        and re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]*", stem)
        and file_name.endswith(suffixes)
    )
    if not fits:
        example = "kernel.cu::run" if config.language in COMPILED_LANGUAGES else "kernel.py::run"
        text = f"expected file::function such as {example!r}, got {config.entry_point!r}"
        raise key_error(root, config, "build", "entry_point", text)
    if file_name not in tree.room_names:
        text = f"no {file_name} in solutions/{tree.room_folder.name}/"
        raise key_error(root, config, "build", "entry_point", text)
    return file_name, symbol


def check_entry(
    source: Source, symbol: str, signature: Signature, config: SolutionConfig, root: Path
) -> None:
    """Raises PackingError or ConfigError for a missing entry or one of another arity."""
    if config.language in COMPILED_LANGUAGES:
        # What a compiled library exports is known to its compiler; the name must at least occur.
        if not re.search(rf"\b{re.escape(symbol)}\b", source.text):
            raise PackingError(f"{source.label}: expected {symbol!r} in it, the entry point")
        return
    label = config.path.relative_to(root).as_posix()
    flag = config.destination_passing_style
    setting = f"[build] {FLAG} = {str(flag).lower()} in {label}"
    check_function(source, symbol, signature, flag, setting)


def check_function(
    source: Source, symbol: str, signature: Signature, flag: bool, setting: str | None = None
) -> None:
    """Raises PackingError unless a Python source's function takes what is passed.

    flag: whether outputs are passed too. setting: how messages name the key that says so, None
    where no key does.
    """
    functions = [
        node
        for node in top_level(parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == symbol
    ]
    if not functions:
        bound = symbol in (bound_names(source) or ())
        text = "is bound otherwise, which hides its parameters" if bound else "is not defined"
        wanted = f"expected `def {symbol}(...)` at its top level"
        because = ", as entry_point in [build] says" if setting else ""
        raise PackingError(f"{source.label}: {symbol!r} {text}; {wanted}{because}")
    for function in functions:
        place = f"{source.label}:{function.lineno}: {symbol}"
        _refuse_kind(place, function)
        _check_parameters(place, function.args, signature, flag, setting)


def _refuse_kind(place: str, function: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    if isinstance(function, ast.AsyncFunctionDef):
        raise PackingError(f"{place} is async; the evaluator calls it and awaits nothing")
    if any(ast.unparse(decorator).endswith(".jit") for decorator in function.decorator_list):
        raise PackingError(f"{place} is a device kernel; expected the function that launches it")
    if function.returns is not None:
        raise PackingError(
            f"{place} has the return annotation `{ast.unparse(function.returns)}`, which "
            f"flashinfer-bench may refuse; remove it"
        )


def _check_parameters(
    place: str, arguments: ast.arguments, signature: Signature, flag: bool, setting: str | None
) -> None:
    expected = signature.inputs + (signature.outputs if flag else ())
    under = f"under {setting} " if setting else ""
    wanted = f"{under}expected {len(expected)} positional: {', '.join(expected)}"
    if unfit := _open_parameters(arguments):
        raise PackingError(f"{place} has {', '.join(unfit)}; {wanted}")
    given = tuple(argument.arg for argument in arguments.posonlyargs + arguments.args)
    if len(given) != len(expected):
        hint = _other_flag_hint(len(given), signature, flag) if setting else ""
        raise PackingError(f"{place} has {len(given)} parameters; {wanted}{hint}")
    for position, name in enumerate(given):
        if name in expected and expected[position] != name:
            raise PackingError(
                f"{place}: parameter {position + 1} is {name!r}, but {expected[position]!r} is "
                f"passed there; the definition's order is {', '.join(expected)}"
            )


def _open_parameters(arguments: ast.arguments) -> list[str]:
    """Parameters whose count or presence the call leaves open, as messages show them."""
    found = []
    if arguments.defaults:
        positional = arguments.posonlyargs + arguments.args
        found += [f"a default for {a.arg}" for a in positional[-len(arguments.defaults) :]]
    if arguments.vararg:
        found.append(f"*{arguments.vararg.arg}")
    found += [f"keyword-only {argument.arg}" for argument in arguments.kwonlyargs]
    if arguments.kwarg:
        found.append(f"**{arguments.kwarg.arg}")
    return found


def _other_flag_hint(count: int, signature: Signature, flag: bool) -> str:
    """What to change where the function would fit the other value of the flag."""
    outputs = ", ".join(signature.outputs)
    if flag and count == len(signature.inputs):
        return f". If it returns its outputs, set {FLAG} = false; otherwise add {outputs}"
    if not flag and count == len(signature.inputs + signature.outputs):
        return f". If it writes {outputs} in place, set {FLAG} = true"
    return ""
