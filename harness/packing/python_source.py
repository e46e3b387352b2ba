"""What a Python source imports, and which C++ or CUDA files it names."""

from __future__ import annotations

import ast
import functools
import re
import sys
import warnings
from collections.abc import Iterator

from harness.errors import PackingError
from harness.packing.cuda_source import embedded_includes
from harness.packing.folders import C_SUFFIXES, Source
from harness.packing.references import Reference

# The judge's side and everything else at the root: nothing of it exists where a solution runs.
CHECKOUT_PACKAGES = frozenset(
    (
        *("harness", "definitions", "workloads", "solutions", "tests"),
        *("peers", "scripts", "examples", "pack"),
    )
)
_SUFFIXES = "|".join(suffix[1:] for suffix in C_SUFFIXES)
_FILE_NAME = re.compile(rf"(?P<folder>(?:[\w.-]*/)*)(?P<name>[\w-][\w.-]*\.(?:{_SUFFIXES}))\Z")
_Documented = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
# Constants with these endings are sources, never headers of a toolkit: they must exist.
_OWN_SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx")


@functools.lru_cache(maxsize=64)
def parse(source: Source) -> ast.Module:
    """The syntax tree, not to be changed: who asks twice gets the same one. Raises PackingError
    with file and line.
    """
    try:
        with warnings.catch_warnings():  # of the compiler, about the solution's style
            warnings.simplefilter("ignore")
            return ast.parse(source.text)
    except SyntaxError as error:
        raise PackingError(f"{source.label}:{error.lineno or 1}: {error.msg}") from error


def python_references(source: Source, siblings: frozenset[str]) -> list[Reference]:
    """Every file of the checkout that a Python source imports, includes or names.

    siblings: the file names that it can reach. Raises PackingError for an import that cannot be
    followed or that nothing satisfies where a solution runs.
    """
    collector = _Collector(source.label, siblings)
    collector.visit(parse(source))
    return collector.found


def bound_names(source: Source) -> frozenset[str] | None:
    """Names that a Python module binds at its top level; None where only running it can tell."""
    names: set[str] = set()
    for node in top_level(parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update((alias.asname or alias.name).split(".")[0] for alias in node.names)
    return None if "*" in names or "__getattr__" in names else frozenset(names)


def top_level(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run when the module is imported: those outside functions and classes."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(
            child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda
        ):
            yield from top_level(child)


class _Collector(ast.NodeVisitor):
    """Gathers references in the order of the text."""

    def __init__(self, label: str, siblings: frozenset[str]) -> None:
        self.label = label
        self.siblings = siblings
        self.documentation: set[ast.expr] = set()
        self.found: list[Reference] = []
        self.caught: frozenset[str] = frozenset()  # exception names, around the current node

    def refuse(self, node: ast.stmt | ast.expr, message: str) -> PackingError:
        return PackingError(f"{self.label}:{node.lineno}: {message}")

    def visit_documented(self, node: _Documented) -> None:
        if node.body and isinstance(first := node.body[0], ast.Expr):
            self.documentation.add(first.value)
        self.generic_visit(node)

    visit_Module = visit_ClassDef = visit_documented
    visit_FunctionDef = visit_AsyncFunctionDef = visit_documented

    def visit_Try(self, node: ast.Try) -> None:
        outside = self.caught
        self.caught = outside.union(*(_caught_names(handler) for handler in node.handlers))
        for statement in node.body:
            self.visit(statement)
        self.caught = outside
        for part in (*node.handlers, *node.orelse, *node.finalbody):
            self.visit(part)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.check_absolute(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module, names = node.module or "", [alias.name for alias in node.names]
        if node.level == 0:
            self.check_absolute(node, module)
        elif node.level > 1 or "." in module:
            raise self.refuse(
                node,
                f"`from {'.' * node.level}{module} import ...` leaves the folder; sources land "
                f"flat, so expected one dot and one name",
            )
        elif module:
            symbols = tuple(name for name in names if name != "*")
            is_optional = not self.caught.isdisjoint(("ImportError", "ModuleNotFoundError"))
            self.add(node, f"{module}.py", symbols, is_optional)
        elif names == ["*"]:
            raise self.refuse(node, "`from . import *` names no file; import each by its name")
        else:  # a missing name of a package is a plain ImportError
            for name in names:
                self.add(node, f"{name}.py", is_optional="ImportError" in self.caught)

    def visit_Call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in ("import_module", "__import__"):
            target = node.args[0] if node.args else None
            name = target.value if isinstance(target, ast.Constant) else None
            if not isinstance(name, str) or name.startswith("."):
                raise self.refuse(
                    node, f"cannot follow {called}(...); write `from .module import name`"
                )
            self.check_absolute(node, name)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if not isinstance(node.value, str) or node in self.documentation:
            return
        if "#include" in node.value:
            self.found.extend(embedded_includes(node.value, node.lineno))
        match = _FILE_NAME.match(node.value)
        if match is None:
            return
        is_sibling = match["name"] in self.siblings
        if match["folder"] and is_sibling:
            raise self.refuse(
                node,
                f"{node.value!r} has a folder; sources land flat beside this file, so expected "
                f"Path(__file__).with_name({match['name']!r})",
            )
        if is_sibling or (not match["folder"] and match["name"].endswith(_OWN_SUFFIXES)):
            self.add(node, match["name"])

    def check_absolute(self, node: ast.stmt | ast.expr, module: str) -> None:
        first = module.split(".")[0]
        if first in CHECKOUT_PACKAGES:
            raise self.refuse(
                node,
                f"imports {module!r}, which no solution has where it is judged; move what is "
                f"needed into the room or solutions/common/",
            )
        if f"{first}.py" in self.siblings and first not in sys.stdlib_module_names:
            raise self.refuse(
                node,
                f"imports the sibling {first!r} absolutely, which fails where it is judged; "
                f"expected `from .{first} import ...`",
            )

    def add(
        self,
        node: ast.stmt | ast.expr,
        file_name: str,
        symbols: tuple[str, ...] = (),
        is_optional: bool = False,
    ) -> None:
        self.found.append(Reference(file_name, node.lineno, symbols, is_optional))


def _caught_names(handler: ast.ExceptHandler) -> list[str]:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return [kind.id for kind in kinds if isinstance(kind, ast.Name)]
