"""GPU facts, clocks, throttling and sharing, on stand-ins for the driver and for NVML."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
import types
import uuid as uuid_module
from dataclasses import replace
from pathlib import Path

import pytest

from harness.devices import (
    ClockSample,
    DeviceFacts,
    GpuProcess,
    describe_no_gpu,
    describe_throttling,
    device_lock,
    libraries,
    nvcc_release,
    other_users,
    read_facts,
    require_idle,
    sample_clocks,
    slug_of,
    summarise_clocks,
    throttled,
)
from harness.devices.cores import _shares, own_cores, spare_cores
from harness.devices.facts import cpu_facts
from harness.devices.sources import LibCuda, PyNvml
from harness.errors import DeviceBusy, EnvironmentUnfit, ExitCode, UsageError
from harness.evaluate.verdicts import read_environment

UUIDS = [f"GPU-0000000{i}-1111-2222-3333-444444444444" for i in range(3)]
HARDWARE_SLOWDOWN, POWER_CAP, IDLE, APPLICATION_CLOCKS = 0x08, 0x04, 0x01, 0x02


def _facts(uuid=UUIDS[0]):
    return DeviceFacts(
        "nvidia-h200", "NVIDIA H200", uuid, None, "13.0", (9, 0), 132, 60 << 20, 141 << 30
    )


class FakeCuda:
    """Devices in CUDA's order, which need not be NVML's."""

    def __init__(self, uuids):
        self.uuids = uuids

    def count(self):
        return len(self.uuids)

    def facts(self, ordinal):
        return _facts(self.uuids[ordinal])


class FakeNvml:
    """A feed of samples and processes by UUID."""

    def __init__(self, samples=(), processes=(), near=None):
        self.near = near or {}
        self.feed = {UUIDS[0]: list(samples)}
        self.running = {UUIDS[0]: tuple(processes)}

    def driver_version(self):
        return "580.65.06"

    def sample(self, uuid):
        return self.feed[uuid].pop(0)

    def processes(self, uuid):
        return self.running.get(uuid, ())

    def near_cores(self):
        return self.near


# --- cores ---------------------------------------------------------------------------------


@pytest.fixture
def host(tmp_path, monkeypatch):
    """A host with so many cores, of which this process may use all. siblings: the list of threads
    of a core's physical one; none is told by default."""

    def make(count, siblings=None):
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(count)))
        monkeypatch.setattr("harness.devices.cores.TOPOLOGY", tmp_path)
        for core in range(count) if siblings else ():
            folder = tmp_path / f"cpu{core}" / "topology"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "thread_siblings_list").write_text(siblings(core) + "\n")

    return make


NEAR_ALL = {uuid: tuple(range(14)) for uuid in UUIDS}


@pytest.mark.parametrize("named", ["number", "UUID", "prefix"])
def test_gpus_of_a_host_have_cores_of_their_own(host, named):
    host(14)
    names = {
        "number": ["0", "1", "2"],
        "UUID": UUIDS,
        "prefix": [uuid[:12] for uuid in UUIDS],
    }[named]
    found = [list(own_cores(name, FakeNvml(near=NEAR_ALL))) for name in names]
    assert found == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [9, 10, 11, 12, 13]]


def test_a_gpus_cores_are_those_near_to_it(host):
    host(0)
    near = {"a": range(8), "b": range(8, 16), "c": range(8)}
    assert _shares(near, range(16)) == {
        "a": (0, 1, 2, 3),
        "b": tuple(range(8, 16)),
        "c": (4, 5, 6, 7),
    }


def test_a_core_that_is_not_available_is_nobodys():
    near = {"a": range(8), "b": range(8, 16)}
    assert _shares(near, {1, 2, 3, 5, 9}) == {"a": (1, 2, 3, 5), "b": (9,)}


def test_threads_of_a_physical_core_stay_together(host):
    host(16, siblings=lambda core: f"{core % 8},{core % 8 + 8}")
    assert _shares({"a": (), "b": ()}, range(16)) == {
        "a": (0, 8, 1, 9, 2, 10, 3, 11),
        "b": (4, 12, 5, 13, 6, 14, 7, 15),
    }
    host(8, siblings=lambda core: f"{core // 2 * 2}-{core // 2 * 2 + 1}")
    assert _shares({"a": (), "b": ()}, range(8)) == {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}


def test_without_cores_near_to_it_a_gpu_has_any(host):
    host(0)
    assert _shares({"a": (98, 99), "b": ()}, range(8)) == {"a": (0, 1, 2, 3), "b": (4, 5, 6, 7)}


def test_too_few_cores_are_everybodys(host):
    host(0)
    few = tuple(range(7))
    assert _shares({"a": few, "b": few}, few) == {"a": few, "b": few}
    assert _shares({"a": (), "b": (), "c": ()}, {0}) == {"a": (0,), "b": (0,), "c": (0,)}


@pytest.mark.parametrize("gpu", ["", "3", "GPU-0000000", "MIG-1", "-1"])
def test_a_gpu_that_nvml_does_not_know_has_all_cores(host, gpu):
    host(14)
    assert list(own_cores(gpu, FakeNvml(near=NEAR_ALL))) == list(range(14))
    assert list(own_cores(gpu, FakeNvml())) == list(range(14))


def test_some_of_each_gpus_cores_are_spared(host):
    host(14)
    assert list(spare_cores(3, FakeNvml(near=NEAR_ALL))) == [3, 7, 8, 12, 13]
    assert list(spare_cores(5, FakeNvml(near=NEAR_ALL))) == [13]
    assert list(spare_cores(3, FakeNvml())) == list(range(3, 14))
    overlapping = {"a": range(10), "b": range(4, 14)}
    assert list(spare_cores(3, FakeNvml(near=overlapping))) == [3, *range(7, 14)]
    host(2)
    assert list(spare_cores(4, FakeNvml())) == [1]


# --- facts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("NVIDIA H200", "nvidia-h200"),
        ("NVIDIA B200", "nvidia-b200"),
        ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
        ("Tesla V100-SXM2-16GB", "tesla-v100-sxm2-16gb"),
        ("NVIDIA GeForce RTX 4090 ", "nvidia-geforce-rtx-4090"),
        ("///", "cpu"),
    ],
)
def test_slugs_are_folder_names(name, slug):
    assert slug_of(name) == slug


def test_facts_of_a_gpu_come_from_the_driver_and_nvml():
    facts = read_facts("cuda:1", FakeCuda(UUIDS), FakeNvml())
    assert facts == replace(_facts(UUIDS[1]), driver="580.65.06")


def test_without_a_gpu_the_device_is_the_cpu():
    facts = read_facts(None, FakeCuda([]), FakeNvml())
    assert facts.slug == "cpu"
    assert (facts.uuid, facts.driver, facts.sm_count) == (None, None, None)
    assert read_facts("cpu", FakeCuda(UUIDS), FakeNvml()).slug == "cpu"
    assert sample_clocks(facts, FakeNvml()) == ClockSample()
    assert other_users(facts, nvml=FakeNvml()) == ()


def test_the_first_visible_gpu_is_the_default():
    assert read_facts(None, FakeCuda(UUIDS[2:]), FakeNvml()).uuid == UUIDS[2]
    assert read_facts("cuda", FakeCuda(UUIDS[1:]), FakeNvml()).uuid == UUIDS[1]


def test_a_gpu_that_is_not_visible_is_an_unfit_environment(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    with pytest.raises(EnvironmentUnfit, match=r"cuda:1.*only 1 .*_VISIBLE_DEVICES is '0'"):
        read_facts("cuda:1", FakeCuda(UUIDS[:1]), FakeNvml())
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(EnvironmentUnfit, match=r"expected cuda:0, but .*; nvidia-smi") as caught:
        read_facts("cuda:0", FakeCuda([]), FakeNvml())
    assert "CUDA_VISIBLE_DEVICES" not in str(caught.value)
    with pytest.raises(UsageError, match="gpu0"):
        read_facts("gpu0", FakeCuda(UUIDS), FakeNvml())


@pytest.mark.parametrize("setting", ["7", "GPU-12345678", "3,4"])
def test_gpus_that_are_named_and_not_there_are_no_call_for_the_cpu(monkeypatch, setting):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    with pytest.raises(EnvironmentUnfit, match=f"CUDA_VISIBLE_DEVICES is '{setting}'"):
        read_facts(None, FakeCuda([]), FakeNvml())


@pytest.mark.parametrize("setting", ["", "-1", "NoDevFiles"])
def test_hidden_gpus_mean_the_cpu_and_are_said_to_be_hidden(monkeypatch, setting):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", setting)
    assert read_facts(None, FakeCuda([]), FakeNvml()).slug == "cpu"
    assert describe_no_gpu() == f"CUDA_VISIBLE_DEVICES is {setting!r}, which hides every GPU"
    with pytest.raises(EnvironmentUnfit, match="which hides every GPU"):
        read_facts("cuda", FakeCuda([]), FakeNvml())


def test_a_sweep_on_the_cpu_begins_with_the_reason(monkeypatch, capsys):
    from harness.cli import evaluate, main

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(evaluate, "run_sweep", lambda *_, facts: facts.slug != "cpu")
    # A room without a replay: the age of one would be told, too.
    assert main(["evaluate", "gdn_decode"]) == ExitCode.OK
    assert capsys.readouterr().out == (
        "no GPU: CUDA_VISIBLE_DEVICES is '', which hides every GPU\n"
    )


@pytest.mark.parametrize("code", [0, 100])
def test_the_driver_says_why_no_gpu_is_visible(monkeypatch, code):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("harness.devices.facts.LibCuda", lambda: LibCuda(FakeLibCuda(code)))
    words = "says: cuInit failed with CUDA error 100" if code else "sees no GPU"
    assert describe_no_gpu() == f"the CUDA driver {words}"


class FakeLibCuda:
    """libcuda's calls, filling ctypes buffers as the real one does."""

    def __init__(self, code=0):
        self.code = code

    def cuInit(self, flags):
        return self.code

    def cuDeviceGetCount(self, out):
        out._obj.value = 2
        return 0

    def cuDeviceGet(self, out, ordinal):
        out._obj.value = 40 + ordinal
        return 0

    def cuDeviceGetName(self, buffer, length, device):
        assert length == 256
        buffer.value = f"NVIDIA H20{device - 40}".encode()
        return 0

    def cuDeviceGetUuid(self, buffer, device):
        buffer.raw = bytes(range(16))
        return 0

    def cuDeviceTotalMem_v2(self, out, device):
        out._obj.value = 141 << 30  # more than 32 bits
        return 0

    def cuDeviceGetAttribute(self, out, code, device):
        out._obj.value = {16: 132, 38: 60 << 20, 75: 9, 76: 0}[code]
        return 0

    def cuDriverGetVersion(self, out):
        out._obj.value = 13010
        return 0


def test_the_cuda_driver_is_asked_for_the_visible_ordinal():
    cuda = LibCuda(FakeLibCuda())
    assert cuda.count() == 2
    facts = cuda.facts(1)
    assert facts == DeviceFacts(
        "nvidia-h201", "NVIDIA H201", f"GPU-{uuid_module.UUID(bytes=bytes(range(16)))}", None,
        "13.1", (9, 0), 132, 60 << 20, 141 << 30,
    )  # fmt: skip
    assert facts.uuid == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"


def test_a_driver_without_devices_is_no_driver():
    with pytest.raises(OSError, match="cuInit failed with CUDA error 100"):
        LibCuda(FakeLibCuda(code=100))


def test_libraries_report_package_metadata():
    versions = libraries()
    assert versions["flashinfer-bench"] == importlib.metadata.version("flashinfer-bench")
    assert versions["flashinfer-bench"] != "0.0.0.dev0"  # what the module itself says
    assert versions["numpy"] == importlib.metadata.version("numpy")
    assert "python" in versions and None not in versions.values()


# --- NVML ------------------------------------------------------------------------------------


class FakeNvmlError(Exception):
    pass


def _fake_pynvml(monkeypatch, **functions):
    """A pynvml module whose other functions do not exist on this driver."""

    def unsupported(*_):
        raise FakeNvmlError("not supported")

    module = types.ModuleType("pynvml")
    module.NVMLError = FakeNvmlError
    module.NVML_CLOCK_SM, module.NVML_CLOCK_MEM, module.NVML_TEMPERATURE_GPU = 1, 2, 0
    names = (
        "nvmlInit nvmlSystemGetDriverVersion nvmlDeviceGetHandleByUUID nvmlDeviceGetClockInfo "
        "nvmlDeviceGetCurrentClocksThrottleReasons nvmlDeviceGetPowerUsage "
        "nvmlDeviceGetTemperature nvmlDeviceGetComputeRunningProcesses nvmlDeviceGetCount "
        "nvmlDeviceGetHandleByIndex nvmlDeviceGetUUID nvmlDeviceGetCpuAffinity"
    )
    for name in names.split():
        setattr(module, name, functions.get(name, unsupported))
    monkeypatch.setitem(sys.modules, "pynvml", module)
    return PyNvml()


def test_nvml_is_asked_by_uuid(monkeypatch):
    nvml = _fake_pynvml(
        monkeypatch,
        nvmlInit=lambda: None,
        nvmlSystemGetDriverVersion=lambda: "580.65.06",
        nvmlDeviceGetHandleByUUID=lambda uuid: f"handle of {uuid}",
        nvmlDeviceGetClockInfo=lambda handle, kind: {1: 1965, 2: 3201}[kind],
        nvmlDeviceGetCurrentClocksThrottleReasons=lambda handle: POWER_CAP,
        nvmlDeviceGetPowerUsage=lambda handle: 699_500,
        nvmlDeviceGetTemperature=lambda handle, sensor: 61,
        nvmlDeviceGetComputeRunningProcesses=lambda handle: [
            types.SimpleNamespace(pid=7, usedGpuMemory=1 << 30, handle=handle)
        ],
    )
    assert nvml.driver_version() == "580.65.06"
    assert nvml.sample(UUIDS[0]) == ClockSample(1965, 3201, POWER_CAP, 699.5, 61)
    assert nvml.processes(UUIDS[0]) == (GpuProcess(7, 1 << 30),)


def test_masks_of_cores_are_read_in_nvmls_order(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 129})
    masks = {0: [0b101, 1 << 63, 0], 2: [0, 0, 0b10]}

    def affinity(handle, words):
        if handle not in masks:
            raise FakeNvmlError("GPU is lost")
        return masks[handle][:words]

    nvml = _fake_pynvml(
        monkeypatch,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 3,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUUID=lambda handle: UUIDS[2 - handle],
        nvmlDeviceGetCpuAffinity=affinity,
    )
    found = [(UUIDS[2], (0, 2, 127)), (UUIDS[1], ()), (UUIDS[0], (129,))]
    assert list(nvml.near_cores().items()) == found


def test_what_nvml_cannot_say_is_unknown(monkeypatch):
    nvml = _fake_pynvml(
        monkeypatch,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetPowerUsage=lambda handle: 70_000,
    )
    assert nvml.sample(UUIDS[0]) == ClockSample(power_w=70.0)
    assert nvml.processes(UUIDS[0]) == ()
    assert nvml.near_cores() == {}
    assert nvml.driver_version() is None


def test_without_nvml_everything_is_unknown(monkeypatch):
    without_driver = _fake_pynvml(monkeypatch)  # nvmlInit fails
    monkeypatch.setitem(sys.modules, "pynvml", None)  # not installed
    for nvml in (without_driver, PyNvml()):
        assert nvml.sample(UUIDS[0]) == ClockSample()
        assert nvml.processes(UUIDS[0]) == ()
        assert nvml.driver_version() is None
        assert summarise_clocks([nvml.sample(UUIDS[0])] * 2) is None


# --- throttling ------------------------------------------------------------------------------


def _feed(*clocks_mhz, reasons=0):
    nvml = FakeNvml([ClockSample(sm_mhz=mhz, reasons=reasons) for mhz in clocks_mhz])
    return [sample_clocks(_facts(), nvml) for _ in clocks_mhz]


def test_a_clock_drop_marks_its_sample():
    samples = _feed(1965, 1965, 1200)
    assert throttled(samples) == [False, False, True]
    assert describe_throttling(samples).startswith("1 of 3")


def test_a_drop_is_seen_wherever_it_stands():
    assert throttled(_feed(1200, 1965, 1965)) == [True, False, False]
    assert throttled(_feed(1965)) == [False]
    assert throttled([]) == []


def test_a_boost_step_is_no_throttling():
    assert throttled(_feed(1980, 1965, 1950)) == [False, False, False]


def test_a_reason_marks_a_sample_at_full_clock():
    samples = [ClockSample(1965, reasons=0), ClockSample(1965, reasons=HARDWARE_SLOWDOWN)]
    assert throttled(samples) == [False, True]
    assert describe_throttling(samples) == "1 of 2 samples throttled (hardware slowdown)"


def test_chosen_clocks_are_no_throttling():
    assert throttled(_feed(1500, 1500, reasons=APPLICATION_CLOCKS)) == [False, False]


def test_an_idle_gpu_is_not_throttled():
    samples = [ClockSample(1965, reasons=0), ClockSample(345, reasons=IDLE)]
    assert throttled(samples) == [False, False]


def test_an_idle_sample_is_no_measure_for_the_others():
    samples = [ClockSample(1980, reasons=IDLE), ClockSample(1500), ClockSample(1500)]
    assert throttled(samples) == [False, False, False]


def test_unknown_clocks_mark_nothing():
    assert throttled([ClockSample(), ClockSample(sm_mhz=1965)]) == [False, False]


def test_the_record_keeps_ranges_and_counts():
    samples = [
        ClockSample(1965, 3201, 0, 500.0, 50),
        ClockSample(1200, 3201, POWER_CAP, 700.0, 61),
    ]
    summary = summarise_clocks(samples)
    assert summary == {
        "samples": 2,
        "throttled": 1,
        "reasons": ["software power cap"],
        "sm_mhz": [1200, 1965],
        "memory_mhz": [3201, 3201],
        "power_w": [500.0, 700.0],
        "temperature_c": [50, 61],
    }
    assert json.loads(json.dumps(summary)) == summary


# --- sharing ---------------------------------------------------------------------------------


def test_a_strangers_process_makes_the_gpu_busy():
    nvml = FakeNvml(processes=[GpuProcess(4242, 3 << 30), GpuProcess(os.getpid(), 1 << 20)])
    assert other_users(_facts(), nvml=nvml) == (GpuProcess(4242, 3 << 30),)
    with pytest.raises(DeviceBusy, match=r"pid 4242 \(3072 MiB\)") as caught:
        require_idle(_facts(), nvml=nvml)
    assert caught.value.exit_code == ExitCode.BUSY


def test_own_workers_and_other_gpus_do_not_count():
    nvml = FakeNvml(processes=[GpuProcess(4242, None)])
    require_idle(_facts(), own_pids=[4242], nvml=nvml)
    require_idle(_facts(UUIDS[1]), nvml=nvml)


@pytest.fixture
def lock_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path


def _holder(lock_folder, uuid, hold_s):
    """Another process that holds the lock of `uuid`; returned once it does."""
    code = (
        "import sys, time\n"
        "from harness.devices import device_lock\n"
        f"with device_lock({uuid!r}):\n"
        "    print('held', flush=True)\n"
        f"    time.sleep({hold_s})\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env={**os.environ, "XDG_RUNTIME_DIR": str(lock_folder)},
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout.readline() == "held\n"
    return process


def test_two_runs_do_not_share_a_gpu(lock_folder):
    with _holder(lock_folder, UUIDS[0], 60) as process:
        try:
            with pytest.raises(DeviceBusy, match=f"pid {process.pid}"), device_lock(UUIDS[0]):
                pass
            with device_lock(UUIDS[1]):  # another GPU is free
                pass
        finally:
            process.kill()
    with device_lock(UUIDS[0]):  # a holder that was killed leaves nothing behind
        assert f"{os.getpid()}\n" in next(lock_folder.rglob(f"{UUIDS[0]}.lock")).read_text()


def test_the_second_run_may_wait(lock_folder):
    with _holder(lock_folder, UUIDS[0], 0.4):
        began = time.monotonic()
        with device_lock(UUIDS[0], wait_s=20.0):
            assert time.monotonic() - began < 20.0


def test_the_lock_is_free_again_after_an_error(lock_folder):
    with pytest.raises(ValueError), device_lock(UUIDS[0]):
        raise ValueError
    with device_lock(UUIDS[0]):
        pass


def test_an_unwritable_lock_folder_is_explained(tmp_path, monkeypatch):
    (tmp_path / "flashinfer-contest-kernels").write_text("a file where the folder should be")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(EnvironmentUnfit, match="XDG_CACHE_HOME"), device_lock(UUIDS[0]):
        pass


def test_the_release_of_nvcc_is_read_from_what_it_says(tmp_path, monkeypatch):
    nvcc = tmp_path / "nvcc"
    nvcc.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V12.9.41'\n")
    nvcc.chmod(0o755)
    assert nvcc_release(str(nvcc)) == "12.9"
    nvcc.write_text("#!/bin/sh\necho nothing\n")
    assert nvcc_release(str(nvcc)) is None
    assert nvcc_release(str(tmp_path / "none")) is None
    monkeypatch.setattr("harness.devices.toolkit.ANSWER_LIMIT_S", 0.1)
    nvcc.write_text("#!/bin/sh\nexec sleep 60\n")
    assert nvcc_release(str(nvcc)) is None


@pytest.mark.parametrize("release", ["13.0", None])
def test_verdicts_of_a_gpu_depend_on_nvcc(release, monkeypatch):
    monkeypatch.setattr("harness.evaluate.verdicts.find_nvcc", lambda _: release and "/bin/nvcc")
    monkeypatch.setattr("harness.evaluate.verdicts.nvcc_release", lambda _: release)
    assert read_environment(_facts())["nvcc"] == (release or "none")
    assert "nvcc" not in read_environment(cpu_facts())
