"""The native routes' sources compile for the architectures that they name, and spill nothing.

And what is built is found again: toolkit.py and native_build.py on toolkits and sources that the
tests lay out.
"""

import itertools
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from harness.devices import OLDEST_NVCC, missing_tools, nvcc_release
from harness.devices import find_nvcc as find_as_the_harness
from harness.devices import toolkit as harness_toolkit
from tests.listing import (
    count_instructions,
    disassemble,
    find_nvdisasm,
    unwritten_uniform_registers,
)
from tests.nvcc import SHELF, compile_native, find_nvcc, load_shelf, make_toolkit

HOPPER = (9, 0)
DISASSEMBLED = ("90a", "100a")  # what Triton's nvdisasm knows
CUDA = Path(__file__).parents[1] / "cuda"
PREFILL_CONTROL, PREFILL_SCORES = CUDA / "prefill_control.cu", CUDA / "prefill_scores.cu"

# (room, source, architecture, kernels)
BUILDS = [
    ("dsa_attention", "attend.cu", "90a", 4),
    ("dsa_attention", "attend.cu", "100a", 4),
    ("dsa_attention", "attend.cu", "103a", 4),
    ("dsa_indexer", "index.cu", "90a", 5),
    ("gdn_prefill", "prefill.cu", "90a", 4),
    ("moe", "moe.cu", "90a", 9),
    ("dsa_indexer_prefill", "prefill.cu", "90a", 7),
]


@pytest.mark.parametrize(("room", "source", "architecture", "count"), BUILDS)
def test_compiles_without_spills(room, source, architecture, count, tmp_path):
    if find_nvcc(architecture) is None:
        pytest.skip("needs the nvcc of a CUDA toolkit that knows the architecture")
    kernels = compile_native(room, source, architecture, tmp_path)
    assert len(kernels) == count
    assert [kernel for kernel in kernels if kernel.spilled_bytes > 0] == []
    nvdisasm = find_nvdisasm()
    if nvdisasm is not None and architecture in DISASSEMBLED:
        listing = disassemble(tmp_path / "native.cubin", nvdisasm)
        assert len(count_instructions(listing, "EXIT")) == count  # the listing was understood
        assert unwritten_uniform_registers(listing) == {}


def test_a_uniform_register_that_nobody_writes_is_found():
    listing = """
.text.copy_kernel:
        /*0000*/                   ULDC.64 UR4, c[0x0][0x208] ;
        /*0010*/              @!P0 LDG.E R2, desc[UR4][R2.64] ;
        /*0020*/                   UIADD3 UR6, UP0, UR5, 0x10, URZ ;
        /*0030*/                   UTMALDG.2D [UR6], [UR4] ;
        /*0040*/               @P1 LDGSTS.E.BYPASS.128 [R11+UR0+0x13200], desc[UR1][R18.64], !P1 ;
.text.other_kernel:
        /*0000*/                   R2UR UR0, R3 ;
        /*0010*/                   R2UR UR1, R4 ;
        /*0020*/                   STG.E desc[UR0][R2.64], R4 ;
.text.kernel.half_a_pair:
        /*0000*/                   UMOV UR4, 0x1 ;
        /*0010*/                   LDG.E R2, desc[UR4][R2.64] ;
.text.blackwell:
        /*0000*/                   UIADD3.64 UR76, UPT, UPT, URZ, 0x4, URZ ;
        /*0010*/                   UTCQMMA gdesc[UR76], gdesc[UR76], tmem[UR76], UPT ;
.text.hopper:
        /*0000*/                   UMOV UR6, 0x1 ;
        /*0010*/                   HGMMA.64x64x16.F32 R24, R68, gdesc[UR4], R24 ;
"""
    assert unwritten_uniform_registers(listing) == {
        "copy_kernel": {"UR0", "UR1", "UR2"},
        "kernel.half_a_pair": {"UR5"},
        "hopper": {"UR7"},
    }


def listing_beside_the_room(source, count, folder):
    """The listing of a source of tests/cuda, built among dsa_indexer_prefill's own: so many kernels
    in all, none of which spills."""
    if find_nvcc("90a") is None:
        pytest.skip("needs the nvcc of a CUDA toolkit that knows the architecture")
    shutil.copy(source, folder)
    kernels = compile_native("dsa_indexer_prefill", source.name, "90a", folder)
    assert len(kernels) == count
    assert [kernel for kernel in kernels if kernel.spilled_bytes > 0] == []
    nvdisasm = find_nvdisasm()
    if nvdisasm is None:
        pytest.skip("needs the disassembler that Triton brings")
    return disassemble(folder / "native.cubin", nvdisasm)


def test_the_control_of_the_prefill_study_compiles_without_spills(tmp_path):
    listing = listing_beside_the_room(PREFILL_CONTROL, 9, tmp_path)  # two beside the room's own
    products = count_instructions(listing, "QGMMA")
    scoring = {name: count for name, count in products.items() if count > 0}
    assert len(scoring) == 6  # the assembler drops products of which nothing is stored
    assert set(scoring.values()) == {4}


def test_the_scores_of_the_prefill_tests_compile_to_the_filters_arithmetic(tmp_path):
    listing = listing_beside_the_room(PREFILL_SCORES, 8, tmp_path)  # one beside the room's own
    assert unwritten_uniform_registers(listing) == {}
    scoring = count_instructions(listing, "QGMMA")
    assert len(scoring) == 5 and set(scoring.values()) == {4}
    for opcode in ("FFMA", "FMUL", "FMNMX"):  # additions: the filter raises thresholds by one, too
        counts = count_instructions(listing, opcode)
        assert len({counts[name] for name in scoring}) == 1, opcode


@pytest.fixture
def toolkits(tmp_path, monkeypatch):
    """No toolkit anywhere, until a test names one."""
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    programs = tmp_path / "local" / "bin"
    programs.mkdir(parents=True)
    for name in ("c++", "ninja"):
        (programs / name).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(programs))
    module = load_shelf("toolkit")
    monkeypatch.setattr(module, "USUAL_TOOLKIT", str(tmp_path / "usual"))
    monkeypatch.setattr("harness.devices.toolkit.USUAL_TOOLKIT", str(tmp_path / "usual"))
    monkeypatch.setattr(module.sys, "executable", str(tmp_path / "python" / "bin" / "python"))
    return module


@pytest.mark.parametrize(
    ("capability", "release", "is_fit"),
    [
        (HOPPER, "12.0", False),
        (HOPPER, "12.1", True),
        ((10, 0), "12.7", False),
        ((10, 0), "12.8", True),
        ((10, 3), "12.8", False),
        ((10, 3), "12.9", True),
        ((8, 9), "13.0", False),
        (None, "13.0", False),
    ],
)
def test_a_toolkit_fits_from_a_release_on(
    toolkits, tmp_path, monkeypatch, capability, release, is_fit
):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit", release))
    assert toolkits.can_build(capability) is is_fit


def test_the_first_toolkit_that_fits_is_taken(toolkits, tmp_path, monkeypatch):
    old, fit = tmp_path / "old", tmp_path / "fit"
    monkeypatch.setenv("CUDA_HOME", make_toolkit(old, "11.8"))
    monkeypatch.setenv("CUDA_PATH", make_toolkit(fit, "12.4"))
    make_toolkit(tmp_path / "usual", "13.0")
    assert toolkits.find_toolkit((12, 1)) == (str(fit), (12, 4))
    assert toolkits.find_toolkit((12, 9)) == (str(tmp_path / "usual"), (13, 0))


def test_a_script_on_the_path_is_no_toolkit(toolkits, tmp_path):
    make_toolkit(tmp_path / "usual")
    nvcc = tmp_path / "local" / "bin" / "nvcc"
    nvcc.write_text(f'#!/bin/sh\nexec {tmp_path}/usual/bin/nvcc "$@"\n')
    nvcc.chmod(0o755)
    assert toolkits.find_toolkit((12, 1)).folder == str(tmp_path / "usual")


def test_a_link_on_the_path_leads_to_its_toolkit(toolkits, tmp_path):
    there = make_toolkit(tmp_path / "there")
    (tmp_path / "local" / "bin" / "nvcc").symlink_to(f"{there}/bin/nvcc")
    assert toolkits.find_toolkit((12, 1)).folder == there


@pytest.mark.parametrize("program", ["c++", "ninja"])
def test_nothing_is_built_without(program, toolkits, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    (tmp_path / "local" / "bin" / program).unlink()
    assert not toolkits.can_build(HOPPER)


def test_ninja_may_lie_beside_the_interpreter(toolkits, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    (tmp_path / "local" / "bin" / "ninja").unlink()
    beside = tmp_path / "python" / "bin"
    beside.mkdir(parents=True)
    (beside / "ninja").symlink_to("/bin/true")
    assert toolkits.can_build(HOPPER)


# The harness says what a solution will find; neither may import the other.


def answers(toolkits, capability):
    """Twice (nvcc and its release, whether all tools are there): the shelf's and the harness's."""
    toolkits.find_toolkit.cache_clear()
    toolkits.can_build.cache_clear()
    found, nvcc = toolkits.find_toolkit(OLDEST_NVCC[capability]), find_as_the_harness(capability)
    of_shelf = found and (f"{found.folder}/bin/nvcc", "{}.{}".format(*found.release))
    of_harness = nvcc and (nvcc, nvcc_release(nvcc))
    return (
        (of_shelf, toolkits.can_build(capability)),
        (of_harness, missing_tools(capability) == []),
    )


def test_harness_and_shelf_know_the_same_releases(toolkits):
    of_shelf = {key: found.oldest_nvcc for key, found in toolkits.ARCHITECTURES.items()}
    assert of_shelf == OLDEST_NVCC
    assert toolkits.ANSWER_LIMIT_S == harness_toolkit.ANSWER_LIMIT_S


def test_harness_and_shelf_look_at_the_same_places(toolkits, tmp_path, monkeypatch):
    places, releases = ("home", "path", "linked", "usual"), (None, "12.4", "13.0")
    for place, release in itertools.product(places, releases[1:]):
        make_toolkit(tmp_path / place / release, release)
    link = tmp_path / "local" / "bin" / "nvcc"
    for layout in itertools.product(releases, repeat=len(places)):
        home, path, linked, usual = (
            str(tmp_path / place / (release or "none"))
            for place, release in zip(places, layout, strict=True)
        )
        monkeypatch.setenv("CUDA_HOME", home)
        monkeypatch.setenv("CUDA_PATH", path)
        link.unlink(missing_ok=True)
        link.symlink_to(f"{linked}/bin/nvcc")
        for module in (toolkits, harness_toolkit):
            monkeypatch.setattr(module, "USUAL_TOOLKIT", usual)
        for capability in (HOPPER, (10, 0)):
            of_shelf, of_harness = answers(toolkits, capability)
            assert of_shelf == of_harness, layout


def spoil(folder, how):
    nvcc = folder / "bin" / "nvcc"
    if how == "a script":
        (folder / "include" / "cuda_runtime.h").unlink()
    elif how == "not to be executed":
        nvcc.chmod(0o644)
    elif how == "no release":
        nvcc.write_text("#!/bin/sh\necho nothing\n")
    else:
        nvcc.write_text("#!/bin/sh\nexec /bin/sleep 60\n")


@pytest.mark.parametrize("how", ["a script", "not to be executed", "no release", "hangs"])
def test_harness_and_shelf_pass_over_the_same_compilers(how, toolkits, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    make_toolkit(tmp_path / "usual", "12.4")
    spoil(tmp_path / "toolkit", how)
    for module in (toolkits, harness_toolkit):
        monkeypatch.setattr(module, "ANSWER_LIMIT_S", 0.5)
    of_shelf, of_harness = answers(toolkits, HOPPER)
    assert of_shelf[0] == of_harness[0] == (f"{tmp_path}/usual/bin/nvcc", "12.4")


@pytest.mark.parametrize("program", ["c++", "ninja"])
@pytest.mark.parametrize("instead", [None, "local/bin/g++", "python/bin/ninja"])
def test_harness_and_shelf_need_the_same_tools(program, instead, toolkits, tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "toolkit"))
    (tmp_path / "local" / "bin" / program).unlink()
    if instead:
        (tmp_path / instead).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / instead).symlink_to("/bin/true")
    of_shelf, of_harness = answers(toolkits, HOPPER)
    assert of_shelf == of_harness


def copy_builder(folder):
    for name in ("native_build.py", "toolkit.py"):
        shutil.copy(SHELF / name, folder)


class Room:
    """A folder of sources beside a native_build.py, and the builds and loads made from it."""

    def __init__(self, folder, monkeypatch):
        import tvm_ffi.cpp

        self.folder, self.builds = folder, []
        self.cache = folder.parent / "cache"
        folder.mkdir()
        copy_builder(folder)
        self.write("attend.cu", '#include "plan.cuh"\n')
        self.write("plan.cuh", "int x;\n")
        monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(self.cache))
        monkeypatch.setenv("CUDA_HOME", make_toolkit(folder.parent / "toolkit"))
        monkeypatch.setattr(tvm_ffi.cpp, "build", self._build)
        monkeypatch.setattr(tvm_ffi, "load_module", str)

    def write(self, name, text):
        (self.folder / name).write_text(text)

    def load(self):
        """What a new process finds: nothing of the module is cached."""
        return load_shelf("native_build", self.folder).load_native("attend.cu", HOPPER)

    def _build(self, name, *, cuda_files, build_directory, **_):
        self.builds.append(dict(os.environ))
        os.makedirs(build_directory)
        path = os.path.join(build_directory, f"{name}.so")
        shutil.copy(os.path.join(os.path.dirname(cuda_files[0]), "plan.cuh"), path)
        return path


@pytest.fixture
def room(tmp_path, monkeypatch):
    return Room(tmp_path / "room", monkeypatch)


def test_sources_that_are_written_anew_are_not_built_anew(room):
    first = room.load()
    for path in room.folder.iterdir():
        os.utime(path, (2**31, 2**31))
    room.write("plan.cuh", "int x;\n")
    assert room.load() == first
    assert len(room.builds) == 1


def test_an_edited_header_is_another_build(room):
    first = room.load()
    room.write("plan.cuh", "int y;\n")
    second = room.load()
    assert second != first
    assert len(room.builds) == 2
    with open(first) as one, open(second) as other:
        assert (one.read(), other.read()) == ("int x;\n", "int y;\n")


def test_another_compiler_is_another_build(room, tmp_path, monkeypatch):
    first = room.load()
    monkeypatch.setenv("CUDA_HOME", make_toolkit(tmp_path / "newer", "13.1"))
    assert room.load() != first
    assert len(room.builds) == 2


def test_the_environment_of_a_build_ends_with_it(room, tmp_path, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("TVM_FFI_CUDA_ARCH_LIST", "8.0")
    before = dict(os.environ)
    room.load()
    assert dict(os.environ) == before
    (during,) = room.builds
    assert during["TVM_FFI_CUDA_ARCH_LIST"] == "9.0a"
    assert during["CUDA_HOME"] == str(tmp_path / "toolkit")


def test_nothing_of_a_failed_build_stays(room, monkeypatch):
    import tvm_ffi.cpp

    def fail(*_, **__):
        raise RuntimeError("error: expected a semicolon")

    before = dict(os.environ)
    with monkeypatch.context() as patch:
        patch.setattr(tvm_ffi.cpp, "build", fail)
        with pytest.raises(RuntimeError, match="semicolon"):
            room.load()
    assert dict(os.environ) == before
    assert [path.name for path in room.cache.iterdir()] == ["native_build.lock"]
    assert room.load().endswith(".so")


def test_a_cache_that_cannot_be_written_names_the_variable(room, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(RuntimeError, match="set TVM_FFI_CACHE_DIR"):
        room.load()


def test_two_threads_build_once(room):
    found, barrier = [], threading.Barrier(2)

    def load():
        barrier.wait()
        found.append(room.load())

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and found[0] == found[1]
    assert len(room.builds) == 1


CHILD = """
import pathlib, sys, time
import tvm_ffi.cpp

def build(name, *, build_directory, **_):
    with open({log!r}, "a") as log:
        log.write("built\\n")
    time.sleep(1)
    folder = pathlib.Path(build_directory)
    folder.mkdir()
    (folder / "x.so").touch()
    return str(folder / "x.so")

tvm_ffi.cpp.build, tvm_ffi.load_module = build, str
sys.path.insert(0, {folder!r})
from room import native_build
print(native_build.load_native("attend.cu", (9, 0)))
"""


def test_two_processes_build_once(room, tmp_path):
    log = tmp_path / "log"
    child = CHILD.format(log=str(log), folder=str(tmp_path))
    command = [sys.executable, "-c", child]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (child.communicate()[0] for child in children)
    assert first == second != ""
    assert log.read_text() == "built\n"


REAL = """
#include <tvm/ffi/function.h>
#include "two.cuh"
__global__ void nothing() {}
int twice(int x) { return TWO * x; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(twice, twice)
"""


def test_what_a_toolkit_builds_can_be_called(tmp_path, monkeypatch):
    copy_builder(tmp_path)
    (tmp_path / "twice.cu").write_text(REAL)
    (tmp_path / "two.cuh").write_text("constexpr int TWO = 2;\n")
    monkeypatch.setenv("TVM_FFI_CACHE_DIR", str(tmp_path / "cache"))
    if not load_shelf("toolkit").can_build(HOPPER):
        pytest.skip("needs a CUDA toolkit, a host compiler and ninja")
    assert load_shelf("native_build", tmp_path).load_native("twice.cu", HOPPER).twice(21) == 42
