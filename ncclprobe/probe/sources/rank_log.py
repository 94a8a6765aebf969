"""The end of the log files that the ranks and their launchers write to.

In: where standard output and standard error of each process point. Out: the last 256 KiB of each regular file, once.
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
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_LIMIT_BYTES = 256 << 10
_STREAMS = {1: "stdout", 2: "stderr"}


def collect(context: Context) -> Iterator[Found | Gap]:
    """One file per distinct log; a gap when none of the job's output goes to a file."""
    seen: set[tuple[int, int]] = set()
    writers = [process for process in context.processes if process.role is not Role.CHILD]
    for process in writers:
        for descriptor, stream in _STREAMS.items():
            found = _tail(process, descriptor, stream, seen)
            if found is not None:
                yield found
    if writers and not seen:
        yield Gap(
            who=context.host,
            what="no log file",
            why="the output of the ranks goes to a terminal or a pipe",
            action="read the file your launcher or scheduler writes it to",
        )


def _tail(process: JobProcess, descriptor: int, stream: str, seen: set[tuple[int, int]]) -> Found | Gap | None:
    path, start_ns = Path(f"/proc/{process.pid}/fd/{descriptor}"), time.time_ns()
    try:
        # Never open what is no regular file: opening a pipe or a terminal could block, or disturb who reads it.
        status = path.stat()
        if not stat.S_ISREG(status.st_mode) or (status.st_dev, status.st_ino) in seen:
            return None
        seen.add((status.st_dev, status.st_ino))
        with _open(process.pid, path) as file:
            file.seek(max(0, status.st_size - _LIMIT_BYTES))
            data = file.read(_LIMIT_BYTES)
    except FileNotFoundError:  # closed, or the process is gone
        return None
    except OSError as error:
        return _unreadable(process, proc.link(process.pid, f"fd/{descriptor}"), error)
    who = f"rank{process.rank}" if process.role is Role.RANK else f"launcher{process.pid}"
    return Found(
        file=f"{who}.{stream}.log",
        kind=Kind.RANK_LOG,
        origin=proc.link(process.pid, f"fd/{descriptor}") or str(path),
        data=data,
        rank=process.rank,
        pid=process.pid,
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


SOURCE = Source(name="rank_log", disturbs=Disturbance.NOTHING, collect=collect)
