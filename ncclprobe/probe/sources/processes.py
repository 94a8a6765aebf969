"""The job's processes: kernel state, wait channel and CPU time, at two looks.

In: the processes found. Out: one JSON file, `{"processes": [...]}`.
"""

import json
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, replace

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess, ProcessLook, Role
from ncclprobe.probe import proc
from ncclprobe.probe.nccl_library import loaded_nccl
from ncclprobe.probe.settings import nvidia_driver, settings_in
from ncclprobe.probe.source import Context, Disturbance, Found, Source
from ncclprobe.probe.torch_library import loaded_torch

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_RESERVE_S = 1.0


def collect(context: Context) -> Iterator[Found | Gap]:
    """Both looks, the options' interval apart, or less where the deadline comes before."""
    if not context.processes:
        return
    start_ns = time.time_ns()
    first = {process.pid: _look(process.pid) for process in context.processes}
    time.sleep(max(0.0, min(context.options.interval_s, context.deadline - _RESERVE_S - time.monotonic())))
    processes = [_with_looks(process, first[process.pid], _look(process.pid)) for process in context.processes]
    data = json.dumps({"processes": [asdict(process) for process in processes]}, indent=1).encode()
    yield Found(
        file="processes.json",
        kind=Kind.PROCESSES,
        origin="/proc/PID/{stat,status,wchan,environ,task/PID/schedstat}",
        data=data,
        start_ns=start_ns,
        end_ns=time.time_ns(),
    )


_Look = tuple[str, ProcessLook]


def _with_looks(process: JobProcess, first: _Look | None, second: _Look | None) -> JobProcess:
    """Without a second look where the pid belongs to another process by now."""
    looks = [look for look in (first, second) if look is not None and first is not None and look[0] == first[0]]
    settings = _settings(process.pid) if process.role is Role.RANK and looks else ()
    return replace(process, looks=tuple(look for _, look in looks), settings=settings)


def _settings(pid: int) -> tuple[tuple[str, str], ...]:
    """Of the environment, and the versions of what is loaded, as far as we may look."""
    library = loaded_nccl(pid)
    versions = {"nccl": library.version if library else None, "torch": loaded_torch(pid)}
    loaded = tuple((name, ".".join(map(str, version))) for name, version in versions.items() if version)
    driver = nvidia_driver()
    return (*settings_in(proc.environ(pid) or {}), *loaded, *((("driver", driver),) if driver else ()))


def _look(pid: int) -> _Look | None:
    """When it was started, which tells it from another process of the same pid, and its look."""
    fields = proc.stat(pid)
    if fields is None:
        return None
    wchan = (proc.read(pid, "wchan") or b"").decode("ascii", "replace")
    look = ProcessLook(
        time_ns=time.time_ns(),
        state=fields[0],
        wchan=wchan if wchan not in ("", "0") else None,
        cpu_s=(int(fields[11]) + int(fields[12])) / _TICKS_PER_S,
        threads=int(fields[17]),
        main_run_ns=_main_run_ns(pid),
    )
    return fields[19], look


def _main_run_ns(pid: int) -> int | None:
    """Not every kernel tells, and some sandboxes do not."""
    words = (proc.read(pid, f"task/{pid}/schedstat") or b"").split()
    return int(words[0]) if words and words[0].isdigit() else None


SOURCE = Source(name="processes", disturbs=Disturbance.NOTHING, collect=collect, looks=2)
