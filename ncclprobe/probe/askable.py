"""Whether a running process may be asked for something from outside, and through which of its threads.

In: a pid. Out: the threads that may be stopped for a moment without harm, or `LiveDumpRefusedError` with the reason.
"""

import os
import platform
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.probe import proc

OTHER_EVIDENCE = "use the other evidence"
_EXECUTABLE_LIMIT_BYTES = 64 << 20
_LOOKS_INTERVAL_S = 0.02

# Threads of torch that sleep between their tasks and hold no lock then; the kernel keeps 15 characters of a name.
_LIBRARY_THREADS = ("pt_gloo_runloop", "pt_nccl_watchdg", "pt_nccl_heartbt")
# System calls that go on after a stop as if nothing had happened (signal(7), "Interruption of system calls and library
# functions by stop signals"). epoll_wait fails with EINTR instead, and so do socket calls that have a time-out.
_FUTEX = {"x86_64": 202, "aarch64": 98}
_RESTARTED = {
    # read poll select nanosleep wait4 clock_nanosleep waitid pselect6 ppoll
    "x86_64": frozenset({0, 7, 23, 35, 61, 230, 247, 270, 271}),
    # read pselect6 ppoll waitid nanosleep clock_nanosleep wait4
    "aarch64": frozenset({63, 72, 73, 95, 101, 115, 260}),
}


class LiveDumpRefusedError(NcclprobeError):
    """The process was not asked, or had nothing to say; it goes on as before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SleepingThread:
    """A thread that may be stopped for a moment: where it sleeps, as number of the system call and stack pointer."""

    thread_id: int
    name: str
    system_call: int
    stack_pointer: int


def check_process(pid: int) -> None:
    """LiveDumpRefusedError when it is not one to be asked: gone, traced, stopped, stuck in the kernel, no Python."""
    fields = proc.status(pid)
    state = _state(fields)
    if is_gone(pid):
        raise gone(pid)
    if fields.get("TracerPid", "0") != "0":
        raise not_permitted(pid)
    if state in "Tt":
        raise LiveDumpRefusedError(f"process {pid} is stopped", f"let it go on first: kill -CONT {pid}")
    if state == "D":
        what = f"process {pid} sleeps in the kernel and cannot be interrupted"
        raise LiveDumpRefusedError(what, "see its wait channel: a driver or a file system hangs")
    if "shstk" in fields.get("x86_Thread_features", ""):
        raise LiveDumpRefusedError(f"process {pid} has a shadow stack, which forbids borrowed calls", OTHER_EVIDENCE)
    executable = proc.read(pid, "exe", _EXECUTABLE_LIMIT_BYTES)
    if executable is None:
        raise not_permitted(pid)
    # Were Python loaded in private, our library would not find its symbols, and the process would exit with 127.
    if b"\0PyGILState_Ensure\0" not in executable and b"\0libpython3" not in executable:
        raise LiveDumpRefusedError(f"process {pid} is not a Python interpreter", "give the pid of a rank")


def is_gone(pid: int) -> bool:
    """Whether it has ended, or is about to: then it has no memory left."""
    fields = proc.status(pid)
    return _state(fields) in "XZ" or "VmSize" not in fields


def gone(pid: int) -> LiveDumpRefusedError:
    """The refusal for a process that has ended."""
    return LiveDumpRefusedError(f"process {pid} is gone", "run ncclprobe again: the job may be restarting")


def not_permitted(pid: int) -> LiveDumpRefusedError:
    """The refusal for a process that this user may not look into, or that another one traces."""
    if is_gone(pid):
        return gone(pid)
    why, advice = proc.ptrace_obstacle(pid)
    return LiveDumpRefusedError(f"process {pid} may not be traced: {why}", advice)


def sleeping_threads(pid: int) -> list[SleepingThread]:
    """The threads that may be stopped, the least important for the job first; the main thread comes last.

    They slept in the same place at two looks: a thread that waits only a moment for a lock (of malloc, of the loader)
    may hold another one, and must not run our functions then.
    """
    if proc.read(pid, "syscall") is None:
        raise not_permitted(pid)
    first = {thread.thread_id: thread for thread in _sleeping_now(pid)}
    time.sleep(_LOOKS_INTERVAL_S)
    lasting = (thread for thread in _sleeping_now(pid) if first.get(thread.thread_id) == thread)
    return sorted(lasting, key=lambda thread: _importance(pid, thread))


def has_thread(pid: int, inner_id: int) -> bool:
    """Whether one of its threads has this id in the process's own PID namespace."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            inner_ids = proc.status(int(name)).get("NSpid", name).split()
            if inner_ids[-1:] == [str(inner_id)]:
                return True
    return False


def _sleeping_now(pid: int) -> Iterator[SleepingThread]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            thread = _sleeping(pid, int(name))
            if thread is not None:
                yield thread


def _sleeping(pid: int, thread_id: int) -> SleepingThread | None:
    """The thread, if it may be stopped now."""
    # proc_pid_syscall(5): "running", or the number, six arguments, stack pointer, program counter
    words = (proc.read(pid, f"task/{thread_id}/syscall") or b"").split()
    if len(words) != 9:
        return None
    number, machine = int(words[0]), platform.machine()
    may_restart = thread_id == pid and number in _RESTARTED.get(machine, ())
    if number != _FUTEX.get(machine) and not may_restart:
        return None
    fields = proc.status(thread_id)
    if _state(fields) != "S":
        return None
    name = fields.get("Name", "")
    return SleepingThread(thread_id=thread_id, name=name, system_call=number, stack_pointer=int(words[7], 16))


def _state(fields: dict[str, str]) -> str:
    return fields.get("State", "X")[:1]


def _importance(pid: int, thread: SleepingThread) -> tuple[int, int]:
    if thread.thread_id == pid:
        return len(_LIBRARY_THREADS) + 1, 0
    known = thread.name in _LIBRARY_THREADS
    return _LIBRARY_THREADS.index(thread.name) if known else len(_LIBRARY_THREADS), thread.thread_id
