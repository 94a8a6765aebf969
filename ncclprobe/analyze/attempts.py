"""A job that was started again: what its earlier attempts wrote tells nothing of the one that hangs.

In: log events. Out: those of the last attempt, with the settings of all of them.

Attempts show in a launcher's line (`will restart worker group`) or in the names of its directories (`attempt_1`).
"""

import re
from collections.abc import Iterable

from ncclprobe.model.evidence import Gap
from ncclprobe.model.log import LogEvent, Restarted, Setting, WorldSize
from ncclprobe.model.records import Sourced

Said = Sourced[LogEvent]
_KEPT = (Setting, WorldSize, Restarted)
_FOLDER = re.compile(r"(?:^|/)attempt_(\d{1,4})/")


def last_attempt(events: list[Said], gaps: Iterable[Gap] = ()) -> list[Said]:
    """An empty file of the last attempt, which is a gap, shows that there was one."""
    names = [*(said.artifact.path for said in events), *(gap.who for gap in gaps)]
    last = max((attempt for attempt in map(_attempt, names) if attempt is not None), default=None)
    restarts: dict[str, Said] = {}
    for said in events:
        if isinstance(said.record.what, Restarted):
            known = restarts.get(said.artifact.path)
            if known is None or known.record.place < said.record.place:
                restarts[said.artifact.path] = said
    moments = [said.record.when_ns for said in restarts.values() if said.record.when_ns is not None]
    when_ns = max(moments, default=None)
    return [said for said in events if not _is_past(said, last, restarts.get(said.artifact.path), when_ns)]


def _attempt(path: str) -> int | None:
    found = _FOLDER.search(path)
    return int(found[1]) if found else None


def _is_past(said: Said, last: int | None, restart: Said | None, when_ns: int | None) -> bool:
    """By its directory, else by its place in the file of the restart, else by its time."""
    if isinstance(said.record.what, _KEPT):
        return False
    attempt = _attempt(said.artifact.path)
    if attempt is not None:
        return last is not None and attempt < last
    if restart is not None:
        return said.record.place < restart.record.place
    own_ns = said.record.when_ns
    return when_ns is not None and own_ns is not None and own_ns < when_ns
