"""The user's source files that the stacks and dumps point to, so that "under `if rank == 0`" can be read later.

In: what earlier waves found. Out: each file once, at most 64 of at most 1 MiB; never a file outside the frames.
"""

import hashlib
import os
import time
from collections.abc import Iterator

from ncclprobe.model.errors import ParseError
from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.frames import Stack
from ncclprobe.parse import flight_recorder, stacks
from ncclprobe.probe.inside import open_inside
from ncclprobe.probe.source import Collected, Context, Disturbance, Found, Source

_LIMIT_BYTES = 1 << 20
_MAX_FILES = 64


def collect(context: Context) -> Iterator[Found | Gap]:
    """Files are opened as the process that runs them sees them, and as its user."""
    pid_of_rank = {process.rank: process.pid for process in context.ranks}
    wanted: dict[str, int] = {}
    for collected in context.earlier:
        pid = collected.artifact.pid or pid_of_rank.get(collected.artifact.rank)
        if pid is not None:
            for file in _user_files(collected):
                wanted.setdefault(file, pid)
    for file, pid in sorted(wanted.items())[:_MAX_FILES]:
        yield _read(file, pid)
    if len(wanted) > _MAX_FILES:
        what, why = f"{len(wanted) - _MAX_FILES} source files", f"at most {_MAX_FILES} are taken"
        yield Gap(who=context.host, what=what, why=why, action="read the quoted lines in your own copy")


def _user_files(collected: Collected) -> set[str]:
    frames = (frame for stack in _stacks(collected) for frame in stack)
    return {frame.file for frame in frames if frame.is_user_code and frame.file.endswith(".py")}


def _stacks(collected: Collected) -> Iterator[Stack]:
    data = collected.spool.read_bytes()
    try:
        if collected.artifact.kind is Kind.STACKS:
            for dump in stacks.parse(data).records:
                yield from (thread.stack for thread in dump.threads)
        if collected.artifact.kind is Kind.FLIGHT_RECORDER:
            for recording in flight_recorder.parse(data).records:
                yield from recording.stacks
    except ParseError:
        return


def _read(file: str, pid: int) -> Found | Gap:
    start_ns = time.time_ns()
    try:
        with open_inside(pid, file) as opened:
            data = opened.read(_LIMIT_BYTES + 1)
    except OSError as error:
        why = error.strerror or str(error)
        return Gap(
            who=f"pid {pid}", what=f"no source of {file}", why=why, action="read the quoted line in your own copy"
        )
    return Found(
        file=hashlib.sha256(file.encode()).hexdigest()[:8] + "-" + os.path.basename(file),
        kind=Kind.USER_CODE,
        origin=file,
        data=data[:_LIMIT_BYTES],
        pid=pid,
        start_ns=start_ns,
        end_ns=time.time_ns(),
        truncated=len(data) > _LIMIT_BYTES,
    )


SOURCE = Source(
    name="user_code",
    disturbs=Disturbance.NOTHING,
    collect=collect,
    wave=5,
    is_wanted=lambda options: options.user_code,
)
