"""Where the logs of ranks that are gone must lie: beside those of the living, under the same name with another number.

In: the files that live ranks write to. Out: the paths to try for each rank of this host that is not among them.

The number is the rank (`train-4711-2.out`, `rank_02.log`), or under torchrun the local rank (`attempt_0/2/stderr.log`).
Two live ranks must agree on where in the name it stands, for a name holds other numbers too; of torchrun, and behind
the word "rank", it is known from one.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from ncclprobe.model.job import JobProcess
from ncclprobe.probe import identity, proc

_MAX_LOGS = 16
_NUMBER = re.compile(r"(?<!\d)\d{1,6}(?!\d)")
_KNOWN = re.compile(r"(?:/attempt_\d+/|rank[-_.=]?)$", re.IGNORECASE)
_TASKS = re.compile(r"(\d{1,5})(?:\(x\d+\))?$")  # SLURM_TASKS_PER_NODE, where all nodes have as many


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A regular file that a live rank writes its `stream` (stdout, stderr) to."""

    process: JobProcess
    stream: str
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A file that may be the log of a rank that is gone. `near`: the live rank it was told from."""

    rank: int
    stream: str
    path: str
    near: JobProcess


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A path with a number in it; `width` is 0 unless it is filled up with zeros. `is_local`: it is the local rank."""

    head: str
    tail: str
    width: int
    is_local: bool

    def path(self, number: int) -> str:
        return f"{self.head}{number:0{self.width}d}{self.tail}"


def find_missing_logs(written: Iterable[Written]) -> Iterator[Missing]:
    """Paths in order of rank, at most `_MAX_LOGS`; nobody has looked yet whether they are there."""
    by_stream: dict[str, list[Written]] = defaultdict(list)
    for one in written:
        if one.process.rank is not None:
            by_stream[one.stream].append(one)
    found = [missing for stream in sorted(by_stream) for missing in _of_stream(by_stream[stream])]
    yield from sorted(found, key=lambda one: (one.rank, one.stream != "stdout"))[:_MAX_LOGS]


def _of_stream(written: Sequence[Written]) -> Iterator[Missing]:
    pattern = _common_pattern(written)
    first = written[0]
    offset = _offset([one.process for one in written])
    if pattern is None or (pattern.is_local and offset is None):
        return
    alive = {one.process.rank for one in written}
    for rank in _ranks_here([one.process for one in written], offset):
        if rank not in alive:
            number = rank - (offset or 0) if pattern.is_local else rank
            yield Missing(rank=rank, stream=first.stream, path=pattern.path(number), near=first.process)


def _common_pattern(written: Sequence[Written]) -> _Pattern | None:
    """The one that fits all of them; the number of the rank goes before that of the local rank."""
    votes = Counter(pattern for one in written for pattern in set(_patterns(one)))
    fitting = [pattern for pattern, count in votes.items() if count == len(written)]
    if len(written) == 1:
        fitting = [pattern for pattern in fitting if _KNOWN.search(pattern.head)]
    ordered = sorted(fitting, key=lambda one: (not _KNOWN.search(one.head), one.is_local, -len(one.head), one.width))
    return ordered[0] if ordered else None


def _patterns(one: Written) -> Iterator[_Pattern]:
    for match in _NUMBER.finditer(one.path):
        text = match[0]
        widths = ([0] if text == str(int(text)) else []) + ([len(text)] if len(text) > 1 else [])
        for number, is_local in ((one.process.rank, False), (one.process.local_rank, True)):
            # Under torchrun the folder has the local rank's number, also where the rank is the same.
            is_torchrun = one.path[: match.start()].endswith("/") and "/attempt_" in one.path[: match.start()]
            if number == int(text) and is_local is is_torchrun:
                head, tail = one.path[: match.start()], one.path[match.end() :]
                yield from (_Pattern(head, tail, width, is_local) for width in widths)


def _offset(processes: Sequence[JobProcess]) -> int | None:
    """Rank less local rank, where that is the same for all."""
    offsets = {p.rank - p.local_rank for p in processes if p.rank is not None and p.local_rank is not None}
    is_whole = all(p.local_rank is not None for p in processes)
    return offsets.pop() if len(offsets) == 1 and is_whole else None


def _ranks_here(processes: Sequence[JobProcess], offset: int | None) -> range:
    """The ranks that this host should have; where nothing tells how many, those between the living."""
    ranks = [process.rank for process in processes if process.rank is not None]
    count = _count(proc.environ(processes[0].pid) or {})
    if offset is None or count is None:
        return range(min(ranks), max(ranks) + 1)
    return range(offset, offset + count)


def _count(environ: identity.Environ) -> int | None:
    tasks = _TASKS.match(environ.get("SLURM_TASKS_PER_NODE", ""))
    count = identity.local_world_size(environ)
    return int(tasks[1]) if count is None and tasks else count
