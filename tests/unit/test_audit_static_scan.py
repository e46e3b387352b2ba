"""The static scan: what is found in sources, and what is left alone."""

import json

import pytest

from harness.audit.static_scan import describe, scan
from harness.config import load_workspace
from harness.packing import pack
from tests import cheat_table

WORKSPACE = load_workspace()


def packed(text, path="kernel.py"):
    return json.dumps({"sources": [{"path": path, "content": text}]})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("import flashinfer", "a serving library"),
        ("from vllm.attention import layer", "a serving library"),
        ("import flashinfer_bench.data", "the reference"),
        ("from harness import timing", "the reference"),
        ("import cupti", "the judge's side"),
        ("import socket", "the network"),
        ("import urllib.request", "the network"),
        ("from subprocess import run", "threads and processes"),
        ("import subprocess as s", "threads and processes"),
        ("import subprocess\nsubprocess.Popen(['x', '--version'])", "uses subprocess"),
        ("import subprocess\nsubprocess.run(['sh', '-c'])", "uses subprocess"),
        ("import subprocess\nsubprocess.run([*words, '--version'])", "uses subprocess"),
        ("import subprocess\nsubprocess.run(words)", "uses subprocess"),
        ("import subprocess\nsubprocess.run(['x', '--version'], **more)", "uses subprocess"),
        ("import subprocess\nsubprocess.run(['x', '--version'], shell=True)", "uses subprocess"),
        ("import subprocess\nstart = subprocess", "uses subprocess"),
        ("from .toolkit import subprocess", "takes subprocess"),
        ("from . import toolkit\ntoolkit.subprocess.run([])", "takes subprocess"),
        ("from .toolkit import *\nsubprocess.run(['sh'])", "uses subprocess"),
        ("import subprocess\nsubprocess.TimeoutExpired.__init__", "uses subprocess"),
        ("import subprocess\nkind = subprocess.TimeoutExpired", "uses subprocess"),
        (
            "import subprocess\ntry:\n    a()\nexcept subprocess.Popen(['sh']):\n    pass",
            "uses subp",
        ),
        (
            "import subprocess\ntry:\n    a()\nexcept (x := subprocess.TimeoutExpired):\n    pass",
            "uses subprocess",
        ),
        ("import subprocess\nglobals()['subprocess'].Popen(['sh'])", "globals reaches names"),
        ("import subprocess\nvars()['subprocess'].Popen(['sh'])", "vars reaches names"),
        ("import subprocess\nlocals()['subprocess'].Popen(['sh'])", "locals reaches names"),
        ("names = globals\nnames()['subprocess'].Popen(['sh'])", "globals reaches names"),
        ("__builtins__['ev' + 'al']('1')", "__builtins__ reaches names"),
        ("run.__globals__['Popen'](['sh'])", "__globals__ reaches names"),
        ("getattr(run, '__globals__')['Popen'](['sh'])", "__globals__ reaches names"),
        ("from . import toolkit\ntoolkit.__dict__['subprocess'].Popen(['sh'])", "__dict__ reaches"),
        ("from . import toolkit\ngetattr(toolkit, 'subprocess').Popen(['sh'])", "takes subprocess"),
        ("object.__subclasses__()", "__subclasses__ reaches names"),
        ("error.__traceback__.tb_frame.f_globals", "f_globals reaches names"),
        ("import tempfile\ntempfile.NamedTemporaryFile()", "uses tempfile"),
        ("import tempfile\nfolder = tempfile.TemporaryDirectory", "uses tempfile"),
        ("import tempfile\ntempfile.TemporaryDirectory.cleanup(x)", "uses tempfile"),
        ("from tempfile import TemporaryDirectory", "files"),
        ("from threading import Thread", "starts a thread"),
        ("import threading as t\nt.Timer(1, print)", "starts a thread"),
        ("import gc", "a look at the caller"),
        ("import inspect", "a look at the caller"),
        ("import importlib\nimportlib.import_module('fla.ops')", "a serving library"),
        ("import importlib\nimportlib.import_module(name())", "cannot be read here"),
        ("import sys\nsys.modules['time'] = None", "reaches into other modules"),
        ("from sys import modules", "reaches into other modules"),
        ("import sys\nsys._getframe(1)", "looks at its caller"),
        ("import os\nos.system('true')", "starts a process"),
        ("import torch\ntorch.allclose = print", "changes torch.allclose"),
        ("import torch\ntorch.cuda.synchronize = print", "changes torch.cuda.synchronize"),
        ("import torch as t\nt.Tensor.__eq__ = None", "changes torch.Tensor.__eq__"),
        ("from torch import cuda\ncuda.Event = None", "changes torch.cuda.Event"),
        ("import time\nsetattr(time, 'time', print)", "changes time"),
        ("import torch\na, torch.equal = 1, 2", "changes torch.equal"),
        ("import torch\ndel torch.isnan", "changes torch.isnan"),
        ("import torch\ntorch.equal: object = print", "changes torch.equal"),
        ("import torch\nfor torch.equal in [print]: pass", "changes torch.equal"),
        ("import torch\na, *torch.ops.x = 1, 2", "changes torch.ops.x"),
        ("import torch\ntorch.library.TABLE['a'] += 1", "changes torch.library.TABLE[...]"),
        ("import subprocess\ndel a[subprocess.Popen(['sh'])]", "uses subprocess"),
        ("import torch\ntorch.cuda.synchronize()", "waits for the GPU"),
        ("import torch\ntorch.cuda.current_stream().synchronize()", "waits for the GPU"),
        ("open('answers.bin')", "opens a file"),
        ("from pathlib import Path\nPath('/tmp/x').read_bytes()", "opens a file"),
        ("import torch\ntorch.load('x')", "reads a file"),
        ("import numpy as np\nnp.fromfile('x')", "opens a file"),
        ("exec('import torch')", "exec runs code that cannot be read here"),
        ("find = __import__\nfind('sub' + 'process')", "__import__ runs code"),
        ("x = (", "cannot be read as Python"),
    ],
)
def test_python_that_reaches_out_is_found_with_its_line(text, words):
    found = scan(packed(text))
    assert found, text
    assert words in "; ".join(found)
    assert all(line.startswith("kernel.py:") for line in found)


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nimport triton\nimport triton.language as tl",
        "from .helpers import patch",
        "import torch\ntorch.backends.cuda.matmul.allow_tf32 = True",
        "import os\nos.environ['TVM_FFI_CUDA_ARCH_LIST'] = '9.0a'",
        "from pathlib import Path\nPath(__file__).with_name('kernel.cu').read_text()",
        "from pathlib import Path\nHERE = Path(__file__).parent\n(HERE / 'k.cu').read_text()",
        "a, here = 1, __file__\nfor path in here:\n    path.read_bytes()",
        "import threading\nBUILDING = threading.Lock()",
        "import torch\nx = torch.compile(print)\ny = x.item()",
        "import re\nre.compile('a')",
        "import subprocess\nsubprocess.run([nvcc, '--version'], text=True, timeout=9)",
        "import subprocess\ntry:\n    ask()\nexcept subprocess.TimeoutExpired:\n    pass",
        "import subprocess\ntry:\n    a()\nexcept (OSError, subprocess.TimeoutExpired):\n    b()",
        "import torch\nkind = getattr(torch, 'float8_e4m3fn')\nself.vars = self.locals",
        "import tempfile\nwith tempfile.TemporaryDirectory() as folder:\n    build(folder)",
        "try:\n    from torch import fp4\nexcept ImportError:\n    fp4 = None",
        "out = {}\nout['a'] = 1\nout.setdefault('b', []).append(1)",
    ],
)
def test_what_a_kernel_may_do_is_left_alone(text):
    assert scan(packed(text)) == []


def test_a_name_that_is_put_together_is_left_to_the_probes():
    assert scan(packed(cheat_table.source("opens_a_file_by_another_name"))) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('#include <x>\nFILE* f = fopen("a", "r");', "kernel.cu:2: fopen reaches for files"),
        ("std::thread t(work);", "starts a thread"),
        ("cudaDeviceSynchronize();", "waits for the GPU"),
        ("cuptiActivityDisable(kind);", "touches the timer"),
        ('system ("true");', "starts a process"),
    ],
)
def test_cuda_that_reaches_out_is_found_with_its_line(text, words):
    assert words in "; ".join(scan(packed(text, "kernel.cu")))


def test_comments_of_cuda_are_no_code_and_keep_the_lines_apart():
    text = "// cudaDeviceSynchronize() is not called\n/* fopen\n fopen */\nint socket_count = 0;\n"
    assert scan(packed(text, "kernel.cuh")) == []
    found = scan(packed(text + "dlopen(name, 0);", "kernel.cuh"))
    assert found == ["kernel.cuh:5: dlopen reaches into other code"]


@pytest.mark.parametrize("room", list(WORKSPACE.rooms))
def test_rooms_reach_for_nothing(room):
    assert scan(pack(WORKSPACE, room).text) == []


def test_a_long_list_says_how_much_is_left_out():
    assert describe(["a"] * 10).endswith("; and 2 more")
