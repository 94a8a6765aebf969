"""The checks that judge figures: RAS by the version of NCCL, room by the bytes."""

import pytest

from ncclprobe.model.checkup import CheckState, Version
from ncclprobe.probe.checks import ras, room


@pytest.mark.parametrize(
    ("versions", "is_off", "state", "says"),
    [
        ([], False, CheckState.ABSENT, "no rank here has loaded"),
        ([(2, 21, 5)], False, CheckState.ABSENT, "has no RAS"),
        ([(2, 21, 5)], True, CheckState.ABSENT, "has no RAS"),
        ([(2, 27, 3)], False, CheckState.LIMITED, "only with --ras"),
        ([(2, 28, 9), None], False, CheckState.LIMITED, "not known"),
        ([(2, 28, 9), (2, 26, 2)], False, CheckState.LIMITED, "NCCL 2.26.2"),
        ([(2, 28, 7)], False, CheckState.OK, "may be asked"),
        ([(2, 28, 7)], True, CheckState.BLOCKED, "NCCL_RAS_ENABLE is 0"),
    ],
)
def test_ras(versions: list[Version | None], is_off: bool, state: CheckState, says: str) -> None:
    check = ras.judge(versions, is_off=is_off)
    assert check.state is state
    assert says in check.what
    assert check.action or state in (CheckState.OK, CheckState.ABSENT)


@pytest.mark.parametrize(
    ("mebibytes", "state"), [(0, CheckState.BLOCKED), (63, CheckState.BLOCKED), (64, CheckState.LIMITED)]
)
def test_little_room(mebibytes: int, state: CheckState) -> None:
    check = room.judge("/dev/shm", mebibytes << 20, 0)
    assert (check.state, bool(check.action)) == (state, True)
    assert f"{mebibytes} MiB free in /dev/shm, 0 MiB in /tmp" in check.what


def test_enough_room() -> None:
    assert room.judge("/tmp", 1 << 30, 1 << 30).state is CheckState.OK
