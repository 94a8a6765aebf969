"""Who holds the interpreter lock of a process, in what, and who waits for it.

In: the stack dumps of one process: py-spy and pystack say who holds it, gdb what each thread waits for in C.
Out: a `GilHold` when the holder is itself blocked in a lock, or in a call of C that does not return.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ncclprobe.model.evidence import Artifact
from ncclprobe.model.frames import Frame, Stack, trace_of
from ncclprobe.model.records import Sourced
from ncclprobe.model.stacks import StackDump, Thread

_TAKE = re.compile(r"take_gil$")
_TAKE_CALLERS = re.compile(
    r"(PyEval_(RestoreThread|AcquireThread|AcquireLock)|PyGILState_Ensure|_PyThreadState_Attach)$"
)
_MUTEX = re.compile(r"_*(GI_+)?(pthread_(mutex|rwlock)_\w*lock\w*|lll_lock_wait\w*)|std::(\w+_)?mutex::lock\w*$")
_SYSTEM = re.compile(r"_*(GI_+)?(pthread|futex|lll|sem|do_futex|syscall|PyCOND|std::|__gthread|clock_)\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class GilHold:
    """`holder` keeps the interpreter lock and is blocked in a lock inside `blocked_in`; `waiters` want the former.

    `closing`: the waiter's frame of the same class as `blocked_in`. It keeps what the holder wants: neither goes on.
    `artifact` shows the holder's C frames. `is_kept`: only the holder's Python frames are known: a call into C that
    was there at every look.
    """

    holder: Thread
    blocked_in: Frame
    waiters: tuple[Thread, ...]
    closing: Frame | None
    artifact: Artifact
    is_kept: bool = False


def find_gil_hold(dumps: Sequence[Sourced[StackDump]]) -> GilHold | None:
    """None unless a thread that holds the lock, or is the only one that can, is seen to wait in a lock of C code."""
    artifacts = {id(thread): dump.artifact for dump in dumps for thread in dump.record.threads}
    threads = [thread for dump in dumps for thread in dump.record.threads]
    waiters = tuple(thread for thread in threads if waits_for_gil(thread))
    waiting = {thread.tid for thread in waiters}
    owners = {thread.tid for thread in threads if thread.owns_gil and thread.tid is not None}
    blocked = [
        (thread, frame) for thread in threads if (frame := _blocked_in(thread.stack)) and thread.tid not in waiting
    ]
    held = [(thread, frame) for thread, frame in blocked if thread.tid in owners]
    if not owners and waiters:  # gdb alone: of those that run Python and wait for a mutex only one can hold it
        held = [(thread, frame) for thread, frame in blocked if _runs_python(thread.stack)]
    if len(held) != 1:
        return None
    holder, frame = held[0]
    return GilHold(
        holder=holder,
        blocked_in=frame,
        waiters=waiters,
        closing=_closing(frame, waiters),
        artifact=artifacts[id(holder)],
    )


def find_kept_gil(looks: Sequence[Sourced[StackDump]]) -> GilHold | None:
    """None unless one thread, and not the main one, had the lock at all of several looks, in the same call.

    Says nothing of a process that uses the CPU: the call may compute.
    """
    last, main = looks[-1], looks[-1].record.main
    owners = [next((thread for thread in look.record.threads if thread.owns_gil), None) for look in looks]
    holder = owners[-1]
    if len(looks) < 2 or main is None or holder is None or holder.tid in (None, main.tid) or not holder.has_python:
        return None
    if not all(o is not None and o.tid == holder.tid and trace_of(o.stack) == trace_of(holder.stack) for o in owners):
        return None
    frame = next(frame for frame in holder.stack if not frame.is_native)
    return GilHold(holder=holder, blocked_in=frame, waiters=(main,), closing=None, artifact=last.artifact, is_kept=True)


def waits_for_gil(thread: Thread) -> bool:
    """Whether the tool says so, or its C frames show it: `take_gil` may be inlined or without a name."""
    if thread.waits_for_gil:
        return True
    for frame in thread.stack:
        if _TAKE.match(frame.function) or _TAKE_CALLERS.match(frame.function):
            return True
        if not _SYSTEM.match(frame.function):
            return False
    return False


def _blocked_in(stack: Stack) -> Frame | None:
    """The function that asked for the mutex the thread waits in; None when it waits in none."""
    outside = next((index for index, frame in enumerate(stack) if not _SYSTEM.match(frame.function)), len(stack))
    is_in_mutex = any(_MUTEX.match(frame.function) for frame in stack[:outside])
    return stack[outside] if is_in_mutex and outside < len(stack) else None


def _runs_python(stack: Stack) -> bool:
    return any("PyEval_Eval" in frame.function or not frame.is_native for frame in stack)


def _closing(blocked_in: Frame, waiters: Iterable[Thread]) -> Frame | None:
    scope = blocked_in.function.rpartition("::")[0]
    frames = (frame for thread in waiters for frame in thread.stack)
    return next((frame for frame in frames if scope and frame.function.rpartition("::")[0] == scope), None)
