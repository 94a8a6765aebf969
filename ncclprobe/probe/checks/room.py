"""Is there room on the host for the probe, and for what it collects?

In: the directory the probe runs in, /tmp and /dev/shm. Out: a check named room.
"""

import os
from collections.abc import Iterator

from ncclprobe.model.checkup import Check, CheckState
from ncclprobe.model.evidence import Gap
from ncclprobe.probe.checkup import found
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_ENOUGH_BYTES = 1 << 30
_BOOTSTRAP_BYTES = 64 << 20  # what probe/bootstrap.py looks for


def collect(context: Context) -> Iterator[Found | Gap]:
    """One check for the host."""
    place = str(context.tools.parent.parent)
    yield found("room", [judge(place, _free_bytes(place), _free_bytes("/tmp"))])  # noqa: S108


def judge(place: str, free_bytes: int, tmp_bytes: int | None) -> Check:
    """`place`: where the probe unpacks, with its free bytes; `tmp_bytes`: those of /tmp."""
    what = f"{free_bytes >> 20} MiB free in {place}"
    if tmp_bytes is not None and place != "/tmp":  # noqa: S108
        what += f", {tmp_bytes >> 20} MiB in /tmp"
    action = "free some, or set TMPDIR for the account that logs in"
    if free_bytes < _BOOTSTRAP_BYTES:
        return Check(name="room", state=CheckState.BLOCKED, what=what, action=action)
    if free_bytes < _ENOUGH_BYTES:
        return Check(name="room", state=CheckState.LIMITED, what=what, action=action)
    return Check(name="room", state=CheckState.OK, what=what)


def _free_bytes(place: str) -> int:
    try:
        figures = os.statvfs(place)
    except OSError:
        return 0
    return figures.f_bavail * figures.f_frsize


SOURCE = Source(name="room", disturbs=Disturbance.NOTHING, collect=collect)
