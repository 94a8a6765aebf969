"""Where each rank's main thread is, told from its stacks at two looks.

In: stack dumps and processes. Out: one `Position` per rank that could be looked into.

What different tools say of one process is joined: py-spy shows the Python frames, gdb and the kernel what the C code
below them waits for.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ncclprobe.analyze.gil import GilHold, find_gil_hold, find_kept_gil
from ncclprobe.analyze.phases import Phase, Place, place_of
from ncclprobe.analyze.whose import find_owners
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.frames import Frame, Stack, innermost_user_frame, trace_of
from ncclprobe.model.job import Rank
from ncclprobe.model.records import Sourced
from ncclprobe.model.stacks import StackDump, Thread

_IDLE_SHARE = 0.05  # of one core, between the looks: polling threads use about 0.01
_SPIN_SHARE = 0.5
_BLOCKING = (Phase.COLLECTIVE, Phase.P2P, Phase.BACKWARD)
_WORKER_LOOP = "_worker_loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A process that a rank started. `user_frame`: its own code only, without what a fork carried over."""

    pid: int | None
    place: Place
    user_frame: Frame | None
    artifact: Artifact
    is_worker: bool
    is_at_work: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One rank at the last look. `is_still`: the same calls at both looks; `cpu_share`: of one core, between them.

    `is_active`: the main thread was on a CPU. `gil_hold`: set when the rank keeps its own interpreter lock for ever.
    `main_share`: of one core that the main thread alone has used between the looks, exactly.
    """

    rank: int
    place: Place
    user_frame: Frame | None
    stack: Stack
    artifact: Artifact
    is_still: bool | None
    cpu_share: float | None
    gil_owner: Thread | None
    children: tuple[Child, ...] = ()
    is_active: bool | None = None
    gil_hold: GilHold | None = None
    main_share: float | None = None

    @property
    def phase(self) -> Phase:
        """What the main thread is doing."""
        return self.place.phase

    @property
    def frame(self) -> Frame | None:
        """The frame to show: the user's own, else Python's that tells what it does, else any of Python's."""
        if self.user_frame is not None:
            return self.user_frame
        python = [frame for frame in (self.place.frame, *self.stack) if frame is not None and not frame.is_native]
        return python[0] if python else self.place.frame

    @property
    def is_idle(self) -> bool | None:
        """Whether the process used next to no CPU between the looks; None when that is not known."""
        return None if self.cpu_share is None else self.cpu_share < _IDLE_SHARE

    @property
    def has_rested(self) -> bool:
        """Whether the main thread used next to no CPU between the looks: it neither computes nor spins."""
        return self.main_share is not None and self.main_share < _IDLE_SHARE

    @property
    def has_woken(self) -> bool:
        """Whether it waits for other ranks, in a call that blocks, and yet ran between the looks: it has gone on.

        A thread that is blocked in one call does not run at all. One that spins in it runs all the time.
        """
        return self.phase in _BLOCKING and self.main_share is not None and 0 < self.main_share < _SPIN_SHARE

    @property
    def busy_child(self) -> Child | None:
        """A worker that has work and does not finish it: what the rank waits for in its data loader."""
        return next((child for child in self.children if child.is_at_work), None)


def find_positions(
    stacks: Iterable[Sourced[StackDump]],
    ranks: dict[int, Rank],
    told: Mapping[tuple[str, int], int] | None = None,
    world_size: int | None = None,
) -> dict[int, Position]:
    """By rank, in order; ranks of which only children were seen have none. For `told` see `whose.find_owners`."""
    of_rank: dict[int, list[Sourced[StackDump]]] = {}
    children: dict[int, list[Child]] = {}
    for owned in find_owners(stacks, ranks, told, world_size):
        if owned.is_child:
            children.setdefault(owned.rank, []).append(_child(owned.sourced))
        else:
            of_rank.setdefault(owned.rank, []).append(owned.sourced)
    return {
        rank: _position(rank, looks, ranks.get(rank), tuple(children.get(rank, ())))
        for rank, looks in sorted(of_rank.items())
    }


def _child(sourced: Sourced[StackDump]) -> Child:
    stack = _main(sourced).stack
    loop = next((index for index, frame in enumerate(stack) if frame.short_function == _WORKER_LOOP), None)
    own = stack if loop is None else stack[:loop]
    place = place_of(stack)
    return Child(
        pid=sourced.record.pid,
        place=place,
        user_frame=innermost_user_frame(own) or (place.frame if own else None),
        artifact=sourced.artifact,
        is_worker=sourced.record.is_worker,
        is_at_work=any(frame.short_function == "fetch" for frame in own),
    )


def _position(
    rank: int, dumps: list[Sourced[StackDump]], process: Rank | None, children: tuple[Child, ...]
) -> Position:
    looks = [dump for dump in dumps if _main(dump).has_python] or dumps
    last = _most_detailed(looks)
    main = _main(last)
    inner = _hooks_of_backward(last.record, main)
    share = _cpu_share(process)
    hold = find_gil_hold(dumps) or (_kept_gil(looks) if share is not None and share < _IDLE_SHARE else None)
    return Position(
        rank=rank,
        place=_joined(place_of(inner), dumps, hold),
        user_frame=innermost_user_frame(inner),
        stack=inner,
        artifact=last.artifact,
        is_still=None if len(looks) < 2 else all(is_same(_main(look).stack, main.stack) for look in looks),
        cpu_share=share,
        gil_owner=next((thread for thread in last.record.threads if thread.owns_gil), None),
        children=children,
        is_active=main.is_active,
        gil_hold=hold,
        main_share=_main_share(process),
    )


def _main(sourced: Sourced[StackDump]) -> Thread:
    main = sourced.record.main
    assert main is not None  # those without were left out
    return main


def _most_detailed(looks: Sequence[Sourced[StackDump]]) -> Sourced[StackDump]:
    """The last look, or an earlier one with the same calls that also shows what is below them in C."""
    last = looks[-1]
    same = (look for look in reversed(looks) if is_same(_main(look).stack, _main(last).stack))
    return next((look for look in same if any(frame.is_native for frame in _main(look).stack)), last)


def _hooks_of_backward(dump: StackDump, main: Thread) -> Stack:
    """While the main thread waits in backward, Python hooks run in autograd's own threads: there the rank is."""
    if place_of(main.stack).phase is not Phase.BACKWARD:
        return main.stack
    for thread in dump.threads:
        if thread is not main and thread.has_python and not _is_started_by_python(thread):
            return thread.stack
    return main.stack


def _is_started_by_python(thread: Thread) -> bool:
    return any(frame.short_function in ("_bootstrap", "_bootstrap_inner") for frame in thread.stack[-3:])


def _kept_gil(looks: Sequence[Sourced[StackDump]]) -> GilHold | None:
    """Whoever holds it to wait for other ranks is where the rank is, not what keeps it."""
    hold = find_kept_gil(looks)
    return None if hold and place_of(hold.holder.stack).phase.waits_for_ranks else hold


def _joined(place: Place, dumps: Sequence[Sourced[StackDump]], hold: GilHold | None) -> Place:
    """A line of user code that calls into C says nothing; what gdb or the kernel saw below it does."""
    if hold and hold.waiters:
        return Place(Phase.LOCK, _line_of(hold) if hold.is_kept else place.frame)
    if place.phase not in (Phase.PYTHON, Phase.UNKNOWN):
        return place
    below = (place_of(_main(dump).stack) for dump in reversed(dumps) if not _main(dump).has_python)
    told = next((found for found in below if found.phase is not Phase.UNKNOWN), None)
    return Place(told.phase, place.frame if place.phase is Phase.PYTHON else told.frame) if told else place


def _line_of(hold: GilHold) -> Frame:
    return innermost_user_frame(hold.holder.stack) or hold.blocked_in


def is_same(one: Stack, other: Stack) -> bool:
    """The same calls from the same lines; the line inside the innermost function may differ: a loop stays in it.

    Tools differ in how much of a path they print and in whether they show C frames.
    """
    return trace_of(one) == trace_of(other)


def _cpu_share(process: Rank | None) -> float | None:
    if process is None or len(process.looks) < 2:
        return None
    first, last = process.looks[0], process.looks[-1]
    elapsed_s = (last.time_ns - first.time_ns) / 1e9
    return (last.cpu_s - first.cpu_s) / elapsed_s if elapsed_s > 0 else None


def _main_share(process: Rank | None) -> float | None:
    looks = process.looks if process else ()
    if len(looks) < 2 or looks[0].main_run_ns is None or looks[-1].main_run_ns is None:
        return None
    elapsed_ns = looks[-1].time_ns - looks[0].time_ns
    return (looks[-1].main_run_ns - looks[0].main_run_ns) / elapsed_ns if elapsed_ns > 0 else None
