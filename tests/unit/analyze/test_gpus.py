"""What a GPU was doing, told from figures as they stand in public reports of hung jobs."""

from typing import Any

import pytest

from ncclprobe.analyze.gpus import GpuDevice, GpuState, are_all_spinning, find_devices, odd_devices, owner_of
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.gpu import GpuLook
from ncclprobe.model.records import Sourced

SECOND = 10**9
SPINNING = {"util_percent": 100, "memory_util_percent": 0, "power_w": 152.0, "power_limit_w": 700.0}
BUSY = {"util_percent": 97, "memory_util_percent": 40, "power_w": 610.0, "power_limit_w": 700.0}
IDLE = {"util_percent": 0, "memory_util_percent": 0, "power_w": 132.0, "power_limit_w": 700.0}


def look(index: int | None = 0, host: str = "node1", path: str = "gpu.json", **figures: Any) -> Sourced[GpuLook]:
    fields: dict[str, Any] = {
        "uuid": "", "name": "H100", "util_percent": None, "memory_util_percent": None, "power_w": None,
        "power_limit_w": None, "sm_clock_mhz": 1980,
    }  # fmt: skip
    artifact = Artifact(path=path, kind=Kind.GPU, host=host, origin="NVML")
    return Sourced(artifact, GpuLook(index=index, **{**fields, **figures}))


def device(*looks: dict[str, Any]) -> GpuDevice:
    """One device; the looks are a second apart."""
    (found,) = find_devices(look(time_ns=number * SECOND, **figures) for number, figures in enumerate(looks))
    return found


@pytest.mark.parametrize(
    ("looks", "state"),
    [
        ([SPINNING], GpuState.SPINNING),
        ([{**SPINNING, "util_percent": 96, "power_w": 16.2, "power_limit_w": 140.0}], GpuState.SPINNING),
        ([SPINNING, {**SPINNING, "util_percent": 40}], GpuState.UNKNOWN),
        ([SPINNING, {**SPINNING, "power_w": 330.0}], GpuState.UNKNOWN),
        ([{**SPINNING, "power_w": None}], GpuState.UNKNOWN),
        ([{**SPINNING, "power_limit_w": None}], GpuState.UNKNOWN),
        ([{**SPINNING, "memory_util_percent": 8}], GpuState.UNKNOWN),
        ([{**SPINNING, "memory_util_percent": None}], GpuState.SPINNING),
        ([IDLE, IDLE], GpuState.IDLE),
        ([IDLE, SPINNING], GpuState.UNKNOWN),
        ([BUSY], GpuState.BUSY),
        ([{**BUSY, "memory_util_percent": 0}], GpuState.BUSY),
        ([{**SPINNING, "memory_util_percent": 30}], GpuState.BUSY),
        ([{"util_percent": 100, "power_w": 71.7, "power_limit_w": 140.0}], GpuState.BUSY),
        ([SPINNING, {"problem": "GPU is lost"}], GpuState.LOST),
        ([{}], GpuState.UNKNOWN),
    ],
)
def test_states(looks: list[dict[str, Any]], state: GpuState) -> None:
    assert device(*looks).state is state


@pytest.mark.parametrize(
    ("moved", "state", "rate"),
    [
        ((0, 0), GpuState.SPINNING, 0.0),
        ((5_000_000, 5_400_000), GpuState.SPINNING, 400_000.0),
        ((0, 40_000_000), GpuState.UNKNOWN, 40e6),
        ((0, 5_000_000_000), GpuState.BUSY, 5e9),
        ((9_000_000_000, 5), GpuState.SPINNING, None),
        ((None, 5), GpuState.SPINNING, None),
    ],
)
def test_bytes_that_move_rule_spinning_out(moved: tuple[int | None, int], state: GpuState, rate: float | None) -> None:
    found = device(*({**SPINNING, "moved_bytes": count} for count in moved))
    assert (found.state, found.moved_bytes_per_s) == (state, rate)


def test_it_is_sure_after_enough_looks_or_when_bytes_are_known_to_stand_still() -> None:
    assert not device(SPINNING, SPINNING).is_sure
    assert not device(*[SPINNING] * 5).is_sure
    assert device(*[SPINNING] * 6).is_sure
    assert device({**SPINNING, "moved_bytes": 7}, {**SPINNING, "moved_bytes": 7}).is_sure


def test_the_figures_in_words() -> None:
    assert device(SPINNING).says == "100 % use, 152 W of 700 W"
    still = ({**SPINNING, "moved_bytes": 7}, {**SPINNING, "power_w": 155.0, "moved_bytes": 7})
    assert device(*still).says == "100 % use, 152 to 155 W of 700 W, no bytes moved"
    assert device({"problem": "GPU is lost"}).says == "GPU is lost"
    assert device({}).says == "use not known"


def test_looks_at_one_device_are_joined_over_files_and_names() -> None:
    looks = [
        look(3, path="a", bus_id="0000:9b:00.0", uuid="GPU-9", **SPINNING),
        look(None, path="b", uuid="GPU-9", **SPINNING),
        look(3, path="c", **SPINNING),
        look(4, path="c", **IDLE),
        look(3, path="c", host="node2", **BUSY),
    ]
    found = find_devices(looks)
    assert [(one.host, one.key, len(one.looks)) for one in found] == [
        ("node1", "0000:9b:00.0", 3),
        ("node1", "GPU 4", 1),
        ("node2", "GPU 3", 1),
    ]
    assert find_devices(reversed(looks))[0].key == "0000:9b:00.0"


def test_the_host_that_a_file_names_counts_more_than_where_the_file_is_from() -> None:
    artifact = look().artifact
    record = GpuLook(
        index=0, uuid="", name="", util_percent=0, memory_util_percent=None, power_w=None, power_limit_w=None,
        sm_clock_mhz=None, host="node9",
    )  # fmt: skip
    (found,) = find_devices([Sourced(artifact, record)])
    assert (artifact.host, found.host) == ("node1", "node9")


def test_of_a_file_written_for_hours_only_the_end_counts() -> None:
    before = [look(0, time_ns=second * SECOND, **BUSY) for second in range(0, 3_000, 10)]
    after = [look(0, time_ns=second * SECOND, **SPINNING) for second in range(3_050, 3_120, 10)]
    (found,) = find_devices([*before, *after])
    assert (found.state, len(found.looks)) == (GpuState.SPINNING, 7)
    untimed = [look(0, **BUSY)] * 20 + [look(0, **SPINNING)] * 10
    assert find_devices(untimed)[0].state is GpuState.SPINNING


def devices(*figures: dict[str, Any]) -> tuple[GpuDevice, ...]:
    return find_devices(look(index, **those) for index, those in enumerate(figures))


@pytest.mark.parametrize(
    ("figures", "odd"),
    [
        ([SPINNING] * 7 + [IDLE], ["GPU 7"]),
        ([SPINNING] * 3 + [BUSY], ["GPU 3"]),
        ([BUSY, SPINNING], ["GPU 0"]),
        ([IDLE, SPINNING], []),
        ([SPINNING, SPINNING, {"problem": "GPU is lost"}], ["GPU 2"]),
        ([SPINNING] * 8, []),
        ([IDLE] * 8, []),
        ([BUSY] * 7 + [SPINNING], []),
        ([SPINNING] * 2 + [IDLE] * 6, []),
        ([SPINNING, SPINNING, {}], []),
    ],
)
def test_the_odd_one_out(figures: list[dict[str, Any]], odd: list[str]) -> None:
    assert [one.key for one in odd_devices(devices(*figures))] == odd


def test_an_idle_device_without_a_process_is_not_part_of_the_job() -> None:
    used = [{**SPINNING, "pids": (10 + n,)} for n in range(4)]
    assert odd_devices(devices(*used, IDLE)) == ()
    assert [one.key for one in odd_devices(devices(*used, {**IDLE, "pids": (20,)}, IDLE))] == ["GPU 4"]


def test_all_spinning() -> None:
    assert are_all_spinning(devices(SPINNING, SPINNING))
    assert not are_all_spinning(devices(SPINNING))
    assert not are_all_spinning(devices(SPINNING, IDLE))


def test_whose_device_it_is() -> None:
    (known,) = find_devices([look(0, bus_id="0000:9a:00.0", pids=(4117,), **SPINNING)])
    assert owner_of(known, {("node1", 4117): 0}, {}) == 0
    assert owner_of(known, {("node2", 4117): 3}, {}) is None
    assert owner_of(known, {}, {("node1", "0000:9a:00.0"): 4, ("node2", "0000:9a:00.0"): 12}) == 4
    assert owner_of(known, {("node1", 4117): 0, ("", 4117): 1}, {}) is None
    (homeless,) = find_devices([look(0, host="", bus_id="0000:9a:00.0", **SPINNING)])
    assert owner_of(homeless, {}, {("node2", "0000:9a:00.0"): 12}) == 12
    assert owner_of(homeless, {}, {("node1", "0000:9a:00.0"): 4, ("node2", "0000:9a:00.0"): 12}) is None
