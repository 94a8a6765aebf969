"""Logs of another job among those given.

In: log events. Out: those of one job, and the files that are of another.

Two files are of two jobs when they say different sizes of the world and both have a line of one rank. Different sizes
alone are a wrong setting, which is an answer. The size that most files say is meant.
"""

from collections import Counter, defaultdict

from ncclprobe.model.log import LogEvent, Setting, WorldSize
from ncclprobe.model.records import Sourced

Said = Sourced[LogEvent]


def of_one_job(events: list[Said]) -> tuple[list[Said], tuple[str, ...]]:
    """The same for any order of files."""
    sizes: dict[str, set[int]] = defaultdict(set)
    ranks: dict[str, set[int]] = defaultdict(set)
    for said in events:
        size = _size_in(said)
        if size is not None:
            sizes[said.artifact.path].add(size)
        if said.record.rank is not None:
            ranks[said.artifact.path].add(said.record.rank)
    said_by = Counter(size for of_file in sizes.values() for size in of_file)
    if len(said_by) < 2:
        return events, ()
    meant = max(said_by, key=lambda size: (said_by[size], size))
    ours = {rank for path, of_file in sizes.items() if meant in of_file for rank in ranks[path]}
    foreign = {path for path, of_file in sizes.items() if meant not in of_file and ranks[path] & ours}
    return [said for said in events if said.artifact.path not in foreign], tuple(sorted(foreign))


def _size_in(said: Said) -> int | None:
    what = said.record.what
    if isinstance(what, WorldSize):
        return what.size
    is_setting = isinstance(what, Setting) and what.name == "WORLD_SIZE" and what.value.isdigit()
    return int(what.value) if is_setting and isinstance(what, Setting) and len(what.value) < 8 else None
