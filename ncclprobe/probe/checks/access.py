"""May this user look into the ranks: see them, read their stacks, ask them by --live-dump?

In: the ranks, and the tools of the kit. Out: checks named ranks, stacks and live_dump.

Opening /proc/PID/mem is the same permission as py-spy's (ptrace_may_access with ATTACH), and disturbs nothing.
"""

import ctypes
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator

from ncclprobe.model.checkup import Check, CheckState
from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.evidence import Gap
from ncclprobe.model.job import JobProcess
from ncclprobe.probe import askable, proc, pyspy
from ncclprobe.probe.checkup import found
from ncclprobe.probe.discover import hides_others
from ncclprobe.probe.scan import scan
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_Obstacle = tuple[str, str]  # why, action


def collect(context: Context) -> Iterator[Found | Gap]:
    """Each check once; ranks with the same obstacle are one line."""
    yield found("access", (*_ranks(context), *_stacks(context), *_live_dump(context)))


def _ranks(context: Context) -> Iterator[Check]:
    numbers = tuple(process.rank for process in context.ranks if process.rank is not None)
    if numbers:
        users = ", ".join(sorted({process.user for process in context.ranks}))
        what = f"{len(numbers)} ranks of {users}; we are uid {os.geteuid()}"
        yield Check(name="ranks", state=CheckState.OK, what=what, ranks=numbers)
        return
    refused = [pid for pid in scan().refused if proc.status(pid)]  # some have ended meanwhile
    if refused:
        why, action = proc.ptrace_obstacle(refused[0])
        what = f"{len(refused)} Python process{'es' if len(refused) > 1 else ''} may not be looked into: {why}"
        yield Check(name="ranks", state=CheckState.BLOCKED, what=what, action=action)
    elif hides_others():
        what, action = "/proc hides other users' processes (hidepid)", "run as root, or as the job's user"
        yield Check(name="ranks", state=CheckState.BLOCKED, what=what, action=action)
    else:
        yield Check(name="ranks", state=CheckState.ABSENT, what="no distributed job runs here now")


def _stacks(context: Context) -> Iterator[Check]:
    program = pyspy.find(context.tools)
    if program is None:
        what, action = "no py-spy for this machine's architecture came along", "pip install py-spy on the host"
        yield Check(name="stacks", state=CheckState.BLOCKED, what=what, action=action)
    elif context.ranks:
        yield from _folded("stacks", context.ranks, why_no_memory, CheckState.BLOCKED, "py-spy may read all ranks")
    else:
        yield _without_ranks()


def _without_ranks() -> Check:
    """What would stand in the way of a job of another user, or of the same."""
    scope = proc.yama_scope()
    what = f"kernel.yama.ptrace_scope is {scope}, we are uid {os.geteuid()}"
    if scope == 0 or (scope < 3 and proc.may_ptrace(os.getpid())):
        return Check(name="stacks", state=CheckState.OK, what=f"{what}; no rank to try it on")
    action = "run as root (sudo), or: sudo sysctl kernel.yama.ptrace_scope=0"
    return Check(name="stacks", state=CheckState.BLOCKED, what=what, action=action)


def why_no_memory(process: JobProcess) -> _Obstacle | None:
    """Why its memory may not be read, if so."""
    try:
        os.close(os.open(f"/proc/{process.pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError:
        return proc.ptrace_obstacle(process.pid)
    libc = ctypes.CDLL(None, use_errno=True)
    # Of nothing: a sandbox refuses the call itself.
    if libc.process_vm_readv(process.pid, None, 0, None, 0, 0) < 0:
        return "a sandbox here forbids to read another process", "run on the container's host"
    return None


def _live_dump(context: Context) -> Iterator[Check]:
    if not all((context.tools / name).exists() for name in ("injector.so", "injection.so")):
        what = "its libraries for this machine's architecture did not come along"
        action = "nothing, unless --live-dump is wanted: it needs a controller of the same architecture"
        yield Check(name="live_dump", state=CheckState.LIMITED, what=what, action=action)
    elif context.ranks:
        good = "--live-dump could ask all ranks"
        yield from _folded("live_dump", context.ranks, _why_not_askable, CheckState.LIMITED, good)
    else:
        yield Check(name="live_dump", state=CheckState.OK, what="its libraries are here; no rank to try it on")


def _why_not_askable(process: JobProcess) -> _Obstacle | None:
    try:
        askable.check_process(process.pid)
        if not askable.sleeping_threads(process.pid):
            return "no thread sleeps where it may be stopped", "try again; the moment may have been a bad one"
    except NcclprobeError as error:
        return str(error).replace(f"process {process.pid}", "the process"), error.advice
    return None


def _folded(
    name: str,
    ranks: Iterable[JobProcess],
    obstacle: Callable[[JobProcess], _Obstacle | None],
    bad: CheckState,
    good: str,
) -> Iterator[Check]:
    """One check for each obstacle, with the ranks that have it."""
    by_obstacle: dict[_Obstacle | None, list[int]] = defaultdict(list)
    for process in ranks:
        by_obstacle[obstacle(process)].append(process.rank if process.rank is not None else process.pid)
    for reason, members in by_obstacle.items():
        if reason is None:
            what = good if len(by_obstacle) == 1 else "may be"
            yield Check(name=name, state=CheckState.OK, what=what, ranks=tuple(members))
        else:
            yield Check(name=name, state=bad, what=reason[0], action=reason[1], ranks=tuple(members))


SOURCE = Source(name="access", disturbs=Disturbance.NOTHING, collect=collect)
