"""What the packed sources reach for, read as text and never run.

Python is read as a syntax tree, C++ and CUDA as text without its comments. A scan sees what is
written plainly; what hides in strings is left to the probes that run the solution.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Iterator
from typing import Any

JUDGE = frozenset(
    {"flashinfer_bench", "harness", "definitions", "workloads", "solutions", "tests", "cupti"}
)
SERVING = frozenset(
    {"flashinfer", "vllm", "sglang", "sgl_kernel", "fla", "flash_attn", "flash_attn_interface"}
    | {"flash_mla", "deep_gemm", "tensorrt_llm", "xformers", "transformers", "liger_kernel"}
    | {"transformer_engine", "flag_gems", "aiter", "lmdeploy", "causal_conv1d", "mamba_ssm"}
)
PROCESSES = frozenset(
    {"_thread", "multiprocessing", "concurrent", "subprocess", "asyncio", "signal", "atexit"}
)
NETWORK = frozenset(
    {"socket", "ssl", "http", "urllib", "requests", "httpx", "aiohttp", "ftplib", "smtplib"}
)
FILES = frozenset({"safetensors", "pickle", "shelve", "sqlite3", "mmap", "tempfile", "glob"})
INSPECTION = frozenset({"gc", "inspect", "traceback", "unittest", "builtins"})
FORBIDDEN_IMPORTS = {
    "the judge's side or the reference": JUDGE,
    "a serving library": SERVING,
    "threads and processes": PROCESSES,
    "the network": NETWORK,
    "files": FILES,
    "a look at the caller or at the interpreter": INSPECTION,
}
# Modules that a build needs for one thing each, which _harmless_names() knows; any other mention of
# them, in whatever module of the solution, is a finding.
FOR_BUILDS = {"subprocess": "more than to ask for a version", "tempfile": "more than a folder"}
VERSION_OPTIONS = frozenset({"capture_output", "text", "check", "timeout"})

# Called names, whatever they are called on.
READS = frozenset(
    {"open", "read_text", "read_bytes", "write_text", "write_bytes", "fromfile", "from_file"}
    | {"memmap", "loadtxt"}
)
# Names, called or not.
HIDDEN_CODE = frozenset({"exec", "eval", "compile", "__import__"})
NAMESPACES = frozenset({"globals", "locals", "vars", "__builtins__"})
# Attributes, of whatever they are taken: each leads to every name of a module, or to every class.
INSIDES = frozenset(
    {"__globals__", "__dict__", "__getattribute__", "__subclasses__"}
    | {"f_globals", "f_locals", "f_builtins"}
)
# Dotted names, called or not.
FORBIDDEN_NAMES = {
    "sys.modules": "reaches into other modules",
    "sys.meta_path": "changes how modules are found",
    "sys._getframe": "looks at its caller",
    "sys._current_frames": "looks at other threads",
    "sys.settrace": "traces the judge",
    "sys.setprofile": "traces the judge",
    "os.system": "starts a process",
    "os.popen": "starts a process",
    "os.fork": "starts a process",
    "os.kill": "ends a process",
    "os._exit": "ends the judge's process",
    "os.open": "opens a file",
    "threading.Thread": "starts a thread",
    "threading.Timer": "starts a thread",
    "torch.load": "reads a file",
    "numpy.load": "reads a file",
    "torch.cuda.synchronize": "waits for the GPU",
    "torch.utils.data": "reads files",
    "torch.multiprocessing": "starts a process",
}
MAY_BE_SET = ("torch.backends.",)  # settings, not functions

CUDA_TEXT = {
    r"\b(fopen|freopen|ifstream|ofstream|fstream|mmap|shm_open)\b": "reaches for files",
    r"\b(socket|connect|getaddrinfo)\s*\(": "reaches for the network",
    r"\b(system|popen|fork|vfork|execv\w*|posix_spawn\w*)\s*\(": "starts a process",
    r"\b(pthread_create|std\s*::\s*(thread|jthread|async))\b": "starts a thread",
    r"\bcuda(Device|Stream|Event)Synchronize\b|\bcu(Ctx|Stream|Event)Synchronize\b": "waits for "
    "the GPU",
    r"\b(dlopen|dlsym|ptrace|process_vm_\w+)\b": "reaches into other code",
    r"\bcupti\w*": "touches the timer",
}
_CUDA_SUFFIXES = (".cu", ".cuh", ".cpp", ".cc", ".cxx", ".c", ".h", ".hpp")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
SHOWN = 8


def scan(solution: str) -> list[str]:
    """Findings in a packed solution's JSON text, each "file:line: what", in the text's order."""
    found: list[str] = []
    for source in json.loads(solution)["sources"]:
        path, text = source["path"], source["content"]
        if path.endswith(".py"):
            found += _scan_python(path, text)
        elif path.endswith(_CUDA_SUFFIXES):
            found += _scan_cuda(path, text)
    return found


def describe(found: list[str]) -> str:
    """The first findings in one line."""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return "; ".join(found[:SHOWN]) + more


def _scan_cuda(path: str, text: str) -> list[str]:
    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n")

    found = []
    for number, line in enumerate(_COMMENT.sub(blank, text).split("\n"), 1):
        for pattern, what in CUDA_TEXT.items():
            match = re.search(pattern, line)
            if match:
                found.append(f"{path}:{number}: {match[0].strip()} {what}")
    return found


def _scan_python(path: str, text: str) -> list[str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError) as error:
        return [f"{path}:1: cannot be read as Python: {error}"]
    scanner = _Scanner(tree)
    scanner.visit(tree)
    return [f"{path}:{line}: {what}" for line, what in scanner.found]


class _Scanner(ast.NodeVisitor):
    """Gathers (line, what) of one module."""

    def __init__(self, tree: ast.Module) -> None:
        self.found: list[tuple[int, str]] = []
        self._modules = dict(_imported(tree))  # local name -> dotted name of something foreign
        self._own_paths = _own_paths(tree)
        self._harmless = {id(name) for node in ast.walk(tree) for name in _harmless_names(node)}

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in FOR_BUILDS and id(node) not in self._harmless:
            self._note(node, f"uses {node.id} for {FOR_BUILDS[node.id]}")
        elif node.id in HIDDEN_CODE:
            self._note(node, f"{node.id} runs code that cannot be read here")
        elif node.id in NAMESPACES:
            self._note(node, f"{node.id} reaches names that cannot be read here")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            if alias.name not in FOR_BUILDS or alias.asname:
                self._check_import(node, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level == 0:
            for alias in node.names:
                self._check_import(node, f"{node.module}.{alias.name}")
            return
        for alias in node.names:
            if alias.name in FOR_BUILDS:
                self._note(node, f"takes {alias.name} from another of its files")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._check_attribute(node, node.attr)
        self._check_name(node)
        self._check_target(node, node, "")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self._check_target(node, node.value, "[...]")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else ""
        called = function.id if isinstance(function, ast.Name) else called
        dotted = self._dotted(function) or called
        if called in READS and not self._is_own(node) and dotted != "torch.compile":
            self._note(node, f"{dotted}() opens a file that is not its own source")
        elif called in ("setattr", "delattr") and node.args and self._dotted(node.args[0]):
            self._note(node, f"{called}() changes {self._dotted(node.args[0])}")
        elif called == "getattr" and len(node.args) > 1:
            self._check_attribute(node, _text(node.args[1]))
        elif called == "import_module":
            name = _text(node.args[0]) if node.args else None
            if name is None:
                self._note(node, "import_module() of a name that cannot be read here")
            else:
                self._check_import(node, name)
        elif called == "synchronize":
            self._note(node, f"{dotted}() waits for the GPU")
        self.generic_visit(node)

    def _check_import(self, node: ast.stmt | ast.expr, dotted: str) -> None:
        for what, modules in FORBIDDEN_IMPORTS.items():
            if dotted.split(".")[0] in modules:
                self._note(node, f"imports {dotted}: {what}")
        for name, what in FORBIDDEN_NAMES.items():
            if dotted == name or dotted.startswith(name + "."):
                self._note(node, f"imports {dotted}, which {what}")

    def _check_attribute(self, node: ast.expr, name: str | None) -> None:
        """name: of an attribute, None where it cannot be read here."""
        if name in FOR_BUILDS:
            self._note(node, f"takes {name} from another of its files")
        elif name in INSIDES:
            self._note(node, f"{name} reaches names that cannot be read here")

    def _check_name(self, node: ast.Attribute) -> None:
        dotted = self._dotted(node)
        if dotted in FORBIDDEN_NAMES and dotted != "torch.cuda.synchronize":
            self._note(node, f"{dotted} {FORBIDDEN_NAMES[dotted]}")

    def _check_target(
        self, node: ast.Attribute | ast.Subscript, holder: ast.expr, entry: str
    ) -> None:
        """Whatever is set or deleted below an imported module is somebody else's."""
        dotted = None if isinstance(node.ctx, ast.Load) else self._dotted(holder)
        if dotted and "." in dotted and not dotted.startswith((*MAY_BE_SET, "os.environ")):
            self._note(node, f"changes {dotted}{entry}")

    def _dotted(self, node: ast.AST) -> str | None:
        """The full name of an expression that starts at an imported module, or None."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.insert(0, node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._modules:
            return None
        return ".".join([self._modules[node.id], *parts])

    def _is_own(self, node: ast.AST) -> bool:
        """Whether an expression's path is derived from __file__: the solution's own sources."""
        return not _names(node).isdisjoint(self._own_paths)

    def _note(self, node: Any, what: str) -> None:
        self.found.append((node.lineno, what))


def _harmless_names(node: ast.AST) -> Iterator[ast.Name]:
    """`subprocess` in `subprocess.run([program, "--version"])`, which runs one program and gives it
    nothing, and in `except subprocess.TimeoutExpired`; `tempfile` in a call of
    `tempfile.TemporaryDirectory`, where reading and writing are findings of their own."""
    if isinstance(node, ast.ExceptHandler):
        types = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        yield from (name for one in types if (name := _module_of(one, "subprocess.TimeoutExpired")))
    elif isinstance(node, ast.Call) and (
        name := _module_of(node.func, "tempfile.TemporaryDirectory")
    ):
        yield name
    elif isinstance(node, ast.Call) and len(node.args) == 1:
        words, options = node.args[0], {option.arg for option in node.keywords}
        name = _module_of(node.func, "subprocess.run")
        if (
            name is not None
            and isinstance(words, ast.List)
            and len(words.elts) == 2
            and not isinstance(words.elts[0], ast.Starred)
            and _text(words.elts[1]) == "--version"
            and options <= VERSION_OPTIONS
        ):
            yield name


def _module_of(node: ast.AST | None, dotted: str) -> ast.Name | None:
    """The module's name in an expression that is `dotted`, "module.attribute"; else None."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.value if f"{node.value.id}.{node.attr}" == dotted else None
    return None


def _text(node: ast.AST) -> str | None:
    """The value of a string that stands there, else None."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield (
                    alias.asname or alias.name.split(".")[0],
                    (alias.name if alias.asname else alias.name.split(".")[0]),
                )
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _own_paths(tree: ast.Module) -> set[str]:
    """Names whose values come from __file__, through assignments and loops."""
    pairs: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            pairs += [pair for target in node.targets for pair in _match(target, node.value)]
        elif isinstance(node, ast.For | ast.comprehension):
            pairs.append((node.target, node.iter))
    own = {"__file__"}
    while True:
        found = {
            name
            for target, value in pairs
            if not own.isdisjoint(_names(value))
            for name in _names(target)
        }
        if found <= own:
            return own
        own |= found


def _match(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target of an assignment with its value: `a, b = x, y` is two."""
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        yield from zip(target.elts, value.elts, strict=False)
    else:
        yield target, value


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def probe(case: Any) -> str | None:
    """Raises Caught with the findings. case: a Case, of which only the packed text is read."""
    from harness.audit.case import Caught

    found = scan(case.job.solution)
    if found:
        raise Caught(describe(found))
    return None
