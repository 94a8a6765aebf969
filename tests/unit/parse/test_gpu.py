"""GPU looks, as far as each device reports."""

import json

import pytest

from ncclprobe.parse.gpu import parse

FULL = {
    "index": 0,
    "uuid": "GPU-1",
    "name": "NVIDIA H100",
    "util_percent": 100,
    "memory_util_percent": 0,
    "power_w": 152.4,
    "power_limit_w": 700.0,
    "sm_clock_mhz": 1980,
    "pids": [41, 42],
}


def written(*gpus: object) -> bytes:
    return json.dumps({"driver": "550", "gpus": gpus}).encode()


def test_a_full_look() -> None:
    (look,) = parse(written(FULL)).records
    assert (look.index, look.util_percent, look.memory_util_percent, look.power_w, look.pids) == (
        0,
        100,
        0,
        152.4,
        (41, 42),
    )


def test_what_a_device_does_not_report_is_unknown() -> None:
    (look,) = parse(written({"index": 3, "util_percent": None})).records
    assert (look.index, look.util_percent, look.power_w, look.pids) == (3, None, None, ())


@pytest.mark.parametrize(
    "change", [{"index": None}, {"util_percent": "90"}, {"pids": ["41"]}, {"pids": 5}, {"power_w": True}]
)
def test_a_damaged_device_costs_itself(change: dict[str, object]) -> None:
    parsed = parse(written({**FULL, **change}, {"index": 1}))
    assert [look.index for look in parsed.records] == [1]
    assert len(parsed.problems) == 1
