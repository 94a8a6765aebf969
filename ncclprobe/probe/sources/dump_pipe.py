"""Flight recorders of running ranks that were started with a dump pipe, asked for through it.

In: the ranks' environment. Out: one dump per rank, as torch writes it to its file.

torch makes the pipe `TORCH_NCCL_DEBUG_INFO_PIPE_FILE` + rank + `.pipe`; any byte in it makes the heartbeat monitor of
the default group write the dump file, within a second, and go on. The file takes the place of an older one, so a rank
is not asked while an older one of this job is not in the bundle yet. Nor is one whose interpreter lock is taken: the
monitor would wait for it, and could then not write a dump without stacks when the watchdog fires.
"""

import errno
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ncclprobe.model.errors import ParseError
from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.job import JobProcess
from ncclprobe.parse import stacks
from ncclprobe.probe import proc
from ncclprobe.probe.dump_files import CLOCK_SLACK_NS, prefixes
from ncclprobe.probe.inside import open_inside, write_pipe_inside
from ncclprobe.probe.source import Context, Disturbance, Found, Source

PIPE_VARIABLE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
WAIT_S = 8.0
_POLL_S, _STABLE_S = 0.1, 0.25
_LIMIT_BYTES = 64 << 20
_STOP = b"."  # a pickle's last byte
_NEXT_TIME = "the other evidence stays; see ncclprobe doctor"

_LATE = (
    "it did not write one in time: its monitor is stuck, waits for the interpreter lock, or looks rarely",
    "see its stack; TORCH_NCCL_DUMP_ON_TIMEOUT=0 makes it look every 8 min",
)

_Version = tuple[int, int, int]  # of a file: inode, time of its last change in ns, size in bytes
_Reason = tuple[str, str]  # why, action


@dataclass(slots=True, kw_only=True)
class _Request:
    """A rank that was asked. `before`: the files it may write, as they were; `path`: the one that has changed."""

    process: JobProcess
    start_ns: int
    before: Mapping[str, _Version | None]
    path: str = ""
    now: _Version | None = None
    since: float = 0.0


def collect(context: Context) -> Iterator[Found | Gap]:
    """All ranks are asked first, then waited for together."""
    requests: list[_Request] = []
    refusals: dict[_Reason, list[int]] = defaultdict(list)
    busy, copied = _busy_ranks(context), _copied_files(context)
    for process in context.ranks:
        environ = proc.environ(process.pid) or {}
        if process.rank is None or not environ.get(PIPE_VARIABLE):
            continue
        asked = _ask(process, environ, copied, is_busy=process.rank in busy)
        if isinstance(asked, _Request):
            requests.append(asked)
        else:
            refusals[asked].append(process.rank)
    yield from _answers(requests, min(time.monotonic() + WAIT_S, context.deadline), refusals)
    for (why, action), ranks in refusals.items():
        yield Gap(who=name_ranks(ranks), what="no dump through the pipe", why=why, action=action)


def _ask(process: JobProcess, environ: Mapping[str, str], copied: set[str], *, is_busy: bool) -> "_Request | _Reason":
    if is_busy:
        return "a thread keeps the interpreter lock, so that the dump would not come", "see that thread's stack"
    before = {path: _version(process.pid, path) for path in (f"{one}{process.rank}" for one in prefixes(environ))}
    started_ns = (proc.start_ns(process.pid) or 0) - CLOCK_SLACK_NS
    for path, version in before.items():
        if version is not None and version[1] >= started_ns and path not in copied:
            return "it has written a dump that could not be collected, and another would replace it", f"copy {path}"
    start_ns = time.time_ns()
    try:
        write_pipe_inside(process.pid, f"{environ[PIPE_VARIABLE]}{process.rank}.pipe", b"1")
    except OSError as error:
        return _why_no_pipe(error)
    return _Request(process=process, start_ns=start_ns, before=before)


def _why_no_pipe(error: OSError) -> _Reason:
    if error.errno == errno.ENOENT:
        why = "torch has made no pipe: its recorder is off, its heartbeat monitor does not run, or it uses no NCCL"
        return why, _NEXT_TIME
    if error.errno == errno.ENXIO:
        return "nobody reads the pipe: the process that made it has ended, or its monitor has", _NEXT_TIME
    if error.errno == errno.EAGAIN:
        return "the pipe is full: nobody has read it for long", _NEXT_TIME
    return f"its pipe: {error.strerror or error}", "run as the job's user, or as root"


def _answers(requests: Iterable[_Request], deadline: float, refusals: dict[_Reason, list[int]]) -> Iterator[Found]:
    waiting = list(requests)
    while waiting and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        for request in list(waiting):
            found = _look(request)
            if found is not None:
                waiting.remove(request)
                yield found
    for request in waiting:
        found = _read(request) if request.path else None
        if found is not None:
            yield found
        elif request.process.rank is not None:
            refusals[_LATE].append(request.process.rank)


def _look(request: _Request) -> Found | None:
    """The dump, once the file has changed, has stayed as it is for a moment, and ends as a dump does."""
    for path, before in request.before.items():
        version = _version(request.process.pid, path)
        if version is None or version == before:
            continue
        if (path, version) != (request.path, request.now):
            request.path, request.now, request.since = path, version, time.monotonic()
        elif time.monotonic() - request.since >= _STABLE_S:
            found = _read(request)
            return found if found is not None and not found.truncated else None
        return None
    return None


def _read(request: _Request) -> Found | None:
    rank, pid = request.process.rank, request.process.pid
    try:
        with open_inside(pid, request.path) as file:
            data = file.read(_LIMIT_BYTES)
            end_ns = os.fstat(file.fileno()).st_mtime_ns
    except OSError:
        return None
    return Found(
        file=f"rank{rank}.pipe.dump",
        kind=Kind.FLIGHT_RECORDER,
        origin=request.path,
        data=data,
        rank=rank,
        pid=pid,
        start_ns=request.start_ns,
        end_ns=end_ns,
        truncated=not data.endswith(_STOP),
    )


def _version(pid: int, path: str) -> _Version | None:
    with suppress(OSError), open_inside(pid, path) as file:
        status = os.fstat(file.fileno())
        return status.st_ino, status.st_mtime_ns, status.st_size
    return None


def _copied_files(context: Context) -> set[str]:
    artifacts = (one.artifact for one in context.earlier)
    return {one.origin for one in artifacts if one.kind is Kind.FLIGHT_RECORDER and not one.truncated}


def _busy_ranks(context: Context) -> set[int | None]:
    """Those of which a thread had the interpreter lock at every look, where there were two."""
    looks: dict[int | None, list[bool]] = defaultdict(list)
    pids = {process.pid for process in context.ranks}
    for one in context.earlier:
        if one.artifact.kind is Kind.STACKS and one.artifact.pid in pids:
            with suppress(ParseError, OSError):
                dumps = stacks.parse(one.spool.read_bytes()).records
                looks[one.artifact.rank].append(any(thread.owns_gil for dump in dumps for thread in dump.threads))
    return {rank for rank, held in looks.items() if len(held) > 1 and all(held)}


SOURCE = Source(name="dump_pipe", disturbs=Disturbance.NOTHING, collect=collect, wave=2)
