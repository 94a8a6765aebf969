"""Flight-recorder dumps that torch has already written to files.

In: the ranks' environment, which says where they go. Out: one file per dump of a rank of this host that is younger than
the job; a home directory on NFS holds those of all hosts.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess
from ncclprobe.probe import identity, proc
from ncclprobe.probe.dump_files import CLOCK_SLACK_NS, prefixes
from ncclprobe.probe.inside import list_inside, open_inside
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_LIMIT_BYTES = 64 << 20
_MAX_RANK_DIGITS = 7
_MAX_LOCAL_RANKS = 1024


def collect(context: Context) -> Iterator[Found | Gap]:
    """Each dump once, whichever rank's environment leads to it."""
    environs = {process.pid: proc.environ(process.pid) or {} for process in context.ranks}
    starts = {process.rank: proc.start_ns(process.pid) or 0 for process in context.ranks}
    wanted = _ranks_here(context.ranks, environs)
    seen: set[tuple[int, int]] = set()
    stale: dict[str, list[int]] = {}
    for process in context.ranks:
        for prefix in prefixes(environs[process.pid]):
            for rank in sorted(_dumped_ranks(process.pid, prefix) & wanted):
                found = _read(process.pid, rank, prefix, starts.get(rank, min(starts.values())), seen)
                if isinstance(found, int):
                    stale.setdefault(prefix, []).append(found)
                elif found is not None:
                    yield found
    yield from (_left_out(prefix, ranks) for prefix, ranks in stale.items())


def _ranks_here(ranks: Sequence[JobProcess], environs: dict[int, dict[str, str]]) -> set[int]:
    """The ranks found, and those between them and of the same node that have died: their dumps count most."""
    numbers = {process.rank for process in ranks if process.rank is not None}
    here = set(range(min(numbers), max(numbers) + 1)) if numbers else set()
    for process in ranks:
        size = identity.local_world_size(environs[process.pid])
        if size is not None and process.rank is not None and process.local_rank is not None:
            first = process.rank - process.local_rank
            here |= set(range(first, first + min(size, _MAX_LOCAL_RANKS)))
    return here


def _dumped_ranks(pid: int, prefix: str) -> set[int]:
    pattern = re.compile(re.escape(os.path.basename(prefix)) + rf"(\d{{1,{_MAX_RANK_DIGITS}}})", re.ASCII)
    try:
        matches = [pattern.fullmatch(name) for name in list_inside(pid, os.path.dirname(prefix))]
    except OSError:
        return set()
    return {int(match[1]) for match in matches if match}


def _read(pid: int, rank: int, prefix: str, started_ns: int, seen: set[tuple[int, int]]) -> Found | Gap | int | None:
    """The dump; the rank's number where it is older than the job; None where it was there before."""
    start_ns, path = time.time_ns(), f"{prefix}{rank}"
    try:
        with open_inside(pid, path) as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) in seen:
                return None
            seen.add((status.st_dev, status.st_ino))
            if status.st_mtime_ns < started_ns - CLOCK_SLACK_NS:
                return rank
            data = file.read(_LIMIT_BYTES)
    except OSError as error:
        why = error.strerror or str(error)
        return Gap(who=f"rank {rank}", what=f"its dump {path}", why=why, action="run as the job's user, or as root")
    return Found(
        file=f"rank{rank}.file.dump",
        kind=Kind.FLIGHT_RECORDER,
        origin=path,
        data=data,
        rank=rank,
        start_ns=start_ns,
        end_ns=status.st_mtime_ns,
        truncated=status.st_size > _LIMIT_BYTES,
    )


def _left_out(prefix: str, ranks: Sequence[int]) -> Gap:
    return Gap(
        who=f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}",
        what=f"dumps {prefix}* were left out",
        why="they are older than the job: an earlier job wrote them",
        action="nothing; remove the files when they are no longer needed",
    )


SOURCE = Source(name="flight_recorder", disturbs=Disturbance.NOTHING, collect=collect)
