"""NVML as it is on a healthy host, on one without a driver, and on one with a sick GPU."""

import sys
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ncclprobe.model.manifest import Outcome
from ncclprobe.parse import gpu as gpu_format
from ncclprobe.probe.crew import Crew, Task
from ncclprobe.probe.source import Found
from ncclprobe.probe.sources import gpu
from ncclprobe.probe.sources.gpu import SOURCE
from tests.unit.probe.sources.context import collect, context


class NVMLError(Exception):
    pass


class Nvml(SimpleNamespace):
    """A driver with two GPUs; each test breaks what it needs."""

    NVMLError = NVMLError
    NVML_CLOCK_SM = 1

    def __init__(self) -> None:
        super().__init__(
            nvmlInit=lambda: None,
            nvmlSystemGetDriverVersion=lambda: b"550.54",
            nvmlDeviceGetCount=lambda: 2,
            nvmlDeviceGetHandleByIndex=lambda index: index,
            nvmlDeviceGetUtilizationRates=lambda handle: SimpleNamespace(gpu=100 * handle, memory=0),
            nvmlDeviceGetPowerUsage=lambda handle: 500,
            nvmlDeviceGetEnforcedPowerLimit=lambda handle: 700_000,
            nvmlDeviceGetComputeRunningProcesses=lambda handle: [SimpleNamespace(pid=70 + handle)],
            nvmlDeviceGetUUID=lambda handle: f"GPU-{handle}",
            nvmlDeviceGetName=lambda handle: b"H100",
            nvmlDeviceGetClockInfo=lambda handle, clock: 1980,
        )


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Nvml:
    fake = Nvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(gpu, "_has_driver", lambda: True)
    return fake


def fail(*_: Any) -> None:
    raise NVMLError("Unknown Error")


def test_each_device_in_a_file_of_its_own(nvml: Nvml) -> None:
    found, gaps = collect(SOURCE, context())
    assert not gaps
    looks = [gpu_format.parse(item.data).records[0] for item in found]
    assert [(look.index, look.uuid, look.name, look.util_percent) for look in looks] == [
        (0, "GPU-0", "H100", 0),
        (1, "GPU-1", "H100", 100),
    ]
    assert (looks[0].power_w, looks[0].power_limit_w, looks[0].sm_clock_mhz, looks[0].pids) == (0.5, 700.0, 1980, (70,))


def test_a_figure_that_a_device_does_not_have_is_unknown_and_not_zero(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetUtilizationRates = nvml.nvmlDeviceGetPowerUsage = fail
    (first, _), _ = collect(SOURCE, context())
    (look,) = gpu_format.parse(first.data).records
    assert (look.util_percent, look.power_w) == (None, None)
    assert look.sm_clock_mhz == 1980


def test_a_lost_gpu_is_a_gap_beside_the_others(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index if index else fail()
    (found,), (gap,) = collect(SOURCE, context())
    assert gpu_format.parse(found.data).records[0].index == 1
    assert (gap.what, gap.why) == ("GPU 0", "NVML answers: Unknown Error")


def test_a_driver_that_does_not_answer_well(nvml: Nvml) -> None:
    nvml.nvmlInit = fail
    found, (gap,) = collect(SOURCE, context())
    assert not found
    assert (gap.what, gap.why) == ("no GPU state", "NVML answers: Unknown Error")


def test_no_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_has_driver", lambda: False)
    found, (gap,) = collect(SOURCE, context())
    assert not found
    assert gap.why == "there is no NVIDIA driver on this host"
    assert "CPU-only" in gap.action


def test_a_gpu_that_hangs_costs_only_itself(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetName = lambda handle: time.sleep(600) if handle == 1 else "H100"
    taken = []

    def produce() -> Iterator[dict[str, Any]]:
        for item in SOURCE.collect(context()):
            assert isinstance(item, Found)
            yield {"file": item.file}

    task = Task(name="gpu", produce=produce, timeout_s=0.7)
    (ending,) = Crew(time.monotonic() + 20).run([task], lambda _, message: taken.append(message))
    assert ending.outcome is Outcome.TIMED_OUT
    assert taken == [{"file": "gpu0.json"}]
