"""The end of the log files that the ranks and their launchers write to, and what is written while we look.

In: where standard output and standard error of each process point. Out: the last 256 KiB of each regular file, once;
of a rank's file that grows within the options' interval also what came, as a file of its own; and what ranks that are
gone have left beside the logs of the living.
"""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess, Role
from ncclprobe.probe import proc
from ncclprobe.probe.inside import open_inside
from ncclprobe.probe.missing_logs import Missing, Written, find_missing_logs
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_LIMIT_BYTES = 256 << 10
_STREAMS = {1: "stdout", 2: "stderr"}
_EARLIER_NS = 10_000_000_000  # a rank that died at once may have written its last word before another one was started


def collect(context: Context) -> Iterator[Found | Gap]:
    """One file per distinct log, and one per rank's log that grows; a gap when none of the output goes to a file."""
    seen: set[tuple[int, int]] = set()
    writers = [process for process in context.processes if process.role is not Role.CHILD]
    ends: dict[tuple[JobProcess, int], int] = {}
    started = time.monotonic()
    for process in writers:
        for descriptor in _STREAMS:
            found = _tail(process, descriptor, seen)
            if found is not None:
                yield found[0]
                ends[process, descriptor] = found[1]
    yield from _of_missing_ranks(writers, seen)
    logs = [(process, descriptor) for process, descriptor in ends if process.role is Role.RANK]
    if logs:
        time.sleep(max(0.0, context.options.interval_s - (time.monotonic() - started)))
    for process, descriptor in logs:
        grown = _tail(process, descriptor, set(), after_bytes=ends[process, descriptor])
        if grown is not None and isinstance(grown[0], Found) and grown[0].data:
            yield grown[0]
    if writers and not seen:
        yield Gap(
            who=context.host,
            what="no log file",
            why="the output of the ranks goes to a terminal or a pipe",
            action="read the file your launcher or scheduler writes it to",
        )


def _tail(
    process: JobProcess, descriptor: int, seen: set[tuple[int, int]], after_bytes: int | None = None
) -> tuple[Found | Gap, int] | None:
    """What is in the log behind `after_bytes`, of much only the end, and where in the file that ends."""
    path, start_ns = Path(f"/proc/{process.pid}/fd/{descriptor}"), time.time_ns()
    try:
        # Never open what is no regular file: opening a pipe or a terminal could block, or disturb who reads it.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
            return None
        seen.add((status.st_dev, status.st_ino))
        begin = max(after_bytes or 0, status.st_size - _LIMIT_BYTES)
        with _open(process.pid, path) as file:
            file.seek(begin)
            data = file.read(_LIMIT_BYTES)
    except FileNotFoundError:  # closed, or the process is gone
        return None
    except OSError as error:
        gap = _unreadable(process, proc.link(process.pid, f"fd/{descriptor}"), error)
        return (gap, 0) if gap else None
    who = f"rank{process.rank}" if process.role is Role.RANK else f"launcher{process.pid}"
    look = "" if after_bytes is None else ".look2"
    found = Found(
        file=f"{who}.{_STREAMS[descriptor]}{look}.log",
        kind=Kind.RANK_LOG,
        origin=proc.link(process.pid, f"fd/{descriptor}") or str(path),
        data=data,
        rank=process.rank,
        pid=process.pid,
        look=None if after_bytes is None else 2,
        start_ns=start_ns,
        end_ns=time.time_ns(),
        truncated=begin > (after_bytes or 0),
    )
    return found, begin + len(data)


def _of_missing_ranks(writers: list[JobProcess], seen: set[tuple[int, int]]) -> Iterator[Found]:
    """Logs of this run only: an older run may have left files of the same name."""
    ranks = [process for process in writers if process.role is Role.RANK]
    starts_ns = [start for start in (proc.start_ns(process.pid) for process in ranks) if start is not None]
    paths = [(process, _STREAMS[fd], proc.link(process.pid, f"fd/{fd}")) for process in ranks for fd in _STREAMS]
    written = [Written(process=one, stream=stream, path=path) for one, stream, path in paths if path and path[0] == "/"]
    for missing in find_missing_logs(written) if starts_ns else ():
        found = _tail_of_missing(missing, min(starts_ns) - _EARLIER_NS, seen)
        if found is not None:
            yield found


def _tail_of_missing(missing: Missing, since_ns: int, seen: set[tuple[int, int]]) -> Found | None:
    start_ns = time.time_ns()
    try:
        with open_inside(missing.near.pid, missing.path) as file:
            status = os.fstat(file.fileno())
            if (status.st_dev, status.st_ino) in seen or status.st_mtime_ns < since_ns:
                return None
            seen.add((status.st_dev, status.st_ino))
            file.seek(max(0, status.st_size - _LIMIT_BYTES))
            data = file.read(_LIMIT_BYTES)
    except OSError:  # it is not there, or not as we thought
        return None
    return Found(
        file=f"rank{missing.rank}.{missing.stream}.log",
        kind=Kind.RANK_LOG,
        origin=missing.path,
        data=data,
        rank=missing.rank,
        start_ns=start_ns,
        end_ns=time.time_ns(),
        truncated=status.st_size > _LIMIT_BYTES,
    )


def _open(pid: int, path: Path) -> BinaryIO:
    """Root may not read on NFS what the user may: then by the file's name, as the user."""
    try:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except PermissionError:
        return open_inside(pid, str(path.readlink()))


def _unreadable(process: JobProcess, name: str | None, error: OSError) -> Gap | None:
    """A launcher may well be another user's (slurmstepd); a rank's log is missed."""
    if process.role is not Role.RANK or name is None:
        return None
    why = error.strerror or str(error)
    return Gap(who=f"rank {process.rank}", what=f"its log {name}", why=why, action="read it as the user of the job")


SOURCE = Source(name="rank_log", disturbs=Disturbance.NOTHING, collect=collect, looks=2)
