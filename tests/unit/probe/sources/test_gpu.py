"""NVML as it is on a healthy host, on one without a driver, and on one with a sick GPU."""

import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from ncclprobe.model.gpu import GpuLook
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


def look_in(item: Found) -> GpuLook:
    (look,) = gpu_format.parse(item.data).records
    return look


def test_each_device_and_look_in_a_file_of_its_own(nvml: Nvml) -> None:
    found, gaps = collect(SOURCE, context())
    assert not gaps
    assert [(item.file, item.look) for item in found] == [
        ("gpu0.look1.json", 1),
        ("gpu1.look1.json", 1),
        ("gpu0.look2.json", 2),
        ("gpu1.look2.json", 2),
    ]
    looks = [look_in(item) for item in found]
    assert [(look.index, look.uuid, look.name, look.util_percent) for look in looks[:2]] == [
        (0, "GPU-0", "H100", 0),
        (1, "GPU-1", "H100", 100),
    ]
    assert (looks[0].power_w, looks[0].power_limit_w, looks[0].sm_clock_mhz, looks[0].pids) == (0.5, 700.0, 1980, (70,))
    assert looks[2].time_ns is not None
    assert looks[0].time_ns is not None
    assert looks[2].time_ns - looks[0].time_ns >= 0.05e9


def test_what_this_driver_does_not_have_is_unknown_and_no_problem(nvml: Nvml) -> None:
    look = look_in(collect(SOURCE, context())[0][0])
    assert (look.bus_id, look.max_sm_clock_mhz, look.uncorrected_ecc, look.remapping_failed) == (None, None, None, None)
    assert (look.moved_bytes, look.temperature_c, look.clock_reasons, look.problem) == (None, None, (), "")


def test_a_newer_driver_says_more(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetPciInfo = lambda handle: SimpleNamespace(busId=b"00000000:9B:00.0")
    nvml.nvmlDeviceGetMaxClockInfo = lambda handle, clock: 2100
    nvml.nvmlDeviceGetCurrentClocksThrottleReasons = lambda handle: 0x9
    nvml.nvmlDeviceGetTotalEccErrors = lambda handle, kind, counter: 3 if (kind, counter) == (1, 0) else 0
    nvml.nvmlDeviceGetRemappedRows = lambda handle: (0, 1, 0, 1)
    nvml.nvmlDeviceGetTemperature = lambda handle, sensor: 35
    nvml.nvmlDeviceGetProcessUtilization = lambda handle, since: [SimpleNamespace(pid=70, smUtil=99, memUtil=1)]
    item = collect(SOURCE, context())[0][0]
    look = look_in(item)
    assert (look.bus_id, look.max_sm_clock_mhz, look.clock_reasons) == (
        "0000:9b:00.0",
        2100,
        ("gpu_idle", "hw_slowdown"),
    )
    assert (look.uncorrected_ecc, look.remapping_failed, look.temperature_c) == (3, True, 35)
    assert json.loads(item.data)["gpus"][0]["process_use"] == [
        {"pid": 70, "util_percent": 99, "memory_util_percent": 1}
    ]


def answers(known: dict[tuple[int, int], int]) -> Callable[[int, list[tuple[int, int]]], list[SimpleNamespace]]:
    """NVML's field values, each by its field and scope."""

    def values(handle: int, wanted: list[tuple[int, int]]) -> list[SimpleNamespace]:
        return [
            SimpleNamespace(nvmlReturn=0 if key in known else 3, value=SimpleNamespace(ullVal=known.get(key, 0)))
            for key in wanted
        ]

    return values


@pytest.mark.parametrize(
    ("known", "moved"),
    [
        ({(138, 0xFFFFFFFF): 10, (139, 0xFFFFFFFF): 20}, 30 * 1024),
        ({(138, 0): 1, (138, 1): 2, (139, 0): 3, (139, 1): 4}, 10 * 1024),
        ({(138, 0xFFFFFFFF): 1, (139, 0xFFFFFFFF): 1, (197, 0): 5, (198, 0): 6}, 2 * 1024 + 11),
        ({}, None),
    ],
)
def test_bytes_over_nvlink_and_pcie(nvml: Nvml, known: dict[tuple[int, int], int], moved: int | None) -> None:
    nvml.nvmlDeviceGetFieldValues = answers(known)
    assert look_in(collect(SOURCE, context())[0][0]).moved_bytes == moved


def test_bytes_over_pcie_are_estimated_where_they_are_not_counted(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetPcieThroughput = lambda handle, direction: 50_000 * handle  # KB/s
    found, _ = collect(SOURCE, context())
    first, busy_first, second, busy_second = (look_in(item).moved_bytes for item in found)
    assert (first, busy_first, second) == (0, 0, 0)
    assert busy_second is not None
    assert 0.05 * 100e6 < busy_second < 2 * 100e6  # 100 MB/s for the interval of 0.1 s, or longer on a busy machine


def test_a_figure_that_a_device_does_not_have_is_unknown_and_not_zero(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetUtilizationRates = nvml.nvmlDeviceGetPowerUsage = fail
    look = look_in(collect(SOURCE, context())[0][0])
    assert (look.util_percent, look.power_w, look.problem) == (None, None, "")
    assert look.sm_clock_mhz == 1980


def test_a_lost_gpu_has_a_problem_beside_the_others_and_is_asked_once(nvml: Nvml) -> None:
    nvml.nvmlDeviceGetHandleByIndex = lambda index: index if index else fail()
    found, (gap,) = collect(SOURCE, context())
    assert [item.file for item in found] == ["gpu0.look1.json", "gpu1.look1.json", "gpu1.look2.json"]
    assert (look_in(found[0]).index, look_in(found[0]).problem) == (0, "NVML answers: Unknown Error")
    assert look_in(found[1]).problem == ""
    assert (gap.what, gap.why) == ("GPU 0", "NVML answers: Unknown Error")


def test_a_gpu_that_is_lost_although_it_has_a_handle(nvml: Nvml) -> None:
    def lost(*_: Any) -> None:
        raise NVMLError("GPU is lost")

    nvml.nvmlDeviceGetUtilizationRates = lost
    found, gaps = collect(SOURCE, context())
    assert look_in(found[0]).problem == "NVML answers: GPU is lost"
    assert [gap.what for gap in gaps] == ["GPU 0", "GPU 1"]


def test_a_gpu_that_does_not_answer_is_given_up_and_the_others_are_not(
    nvml: Nvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "_DEVICE_TIMEOUT_S", 0.2)
    released = threading.Event()
    nvml.nvmlDeviceGetName = lambda handle: released.wait(30) if handle == 0 else "H100"
    found, (gap,) = collect(SOURCE, context())
    released.set()
    assert [item.file for item in found] == ["gpu0.look1.json", "gpu1.look1.json", "gpu1.look2.json"]
    assert look_in(found[0]).problem == gap.why == "NVML did not answer in 0.2 s"


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

    task = Task(name="gpu", produce=produce, timeout_s=1.0)
    (ending,) = Crew(time.monotonic() + 20).run([task], lambda _, message: taken.append(message))
    assert ending.outcome is Outcome.TIMED_OUT
    assert taken == [{"file": "gpu0.look1.json"}]
