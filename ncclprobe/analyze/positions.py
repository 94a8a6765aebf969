"""Where each rank's main thread is, told from its stacks at two looks.

In: stack dumps and processes. Out: one `Position` per rank that could be looked into.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ncclprobe.analyze.phases import Phase, Place, place_of
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.frames import Frame, Stack, innermost_user_frame
from ncclprobe.model.job import Rank
from ncclprobe.model.records import Sourced
from ncclprobe.model.stacks import StackDump, Thread

_IDLE_SHARE = 0.05  # of one core, between the looks: polling threads use about 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """One rank at the last look. `is_still`: the same calls at both looks; `cpu_share`: of one core, between them."""

    rank: int
    place: Place
    user_frame: Frame | None
    stack: Stack
    artifact: Artifact
    is_still: bool | None
    cpu_share: float | None
    gil_owner: Thread | None
    children: tuple[tuple[Artifact, Place], ...] = ()

    @property
    def phase(self) -> Phase:
        """What the main thread is doing."""
        return self.place.phase

    @property
    def is_idle(self) -> bool | None:
        """Whether the process used next to no CPU between the looks; None when that is not known."""
        return None if self.cpu_share is None else self.cpu_share < _IDLE_SHARE


def find_positions(stacks: Iterable[Sourced[StackDump]], ranks: dict[int, Rank]) -> dict[int, Position]:
    """By rank. Stacks of children are told from those of ranks by the pid."""
    of_rank: dict[int, list[Sourced[StackDump]]] = {}
    children: dict[int, list[tuple[Artifact, Place]]] = {}
    for sourced in sorted(stacks, key=lambda s: (s.artifact.look or 0, s.artifact.path)):
        rank, main = sourced.artifact.rank, sourced.record.main
        if rank is None or main is None:
            continue
        if rank in ranks and sourced.artifact.pid in ranks[rank].children:
            children.setdefault(rank, []).append((sourced.artifact, place_of(main.stack)))
        else:
            of_rank.setdefault(rank, []).append(sourced)
    return {
        rank: _position(rank, looks, ranks.get(rank), tuple(children.get(rank, ())))
        for rank, looks in sorted(of_rank.items())
    }


def _position(
    rank: int, looks: list[Sourced[StackDump]], process: Rank | None, children: tuple[tuple[Artifact, Place], ...]
) -> Position:
    last = looks[-1]
    threads = [look.record.main for look in looks]
    main = threads[-1]
    assert main is not None
    place = place_of(main.stack)
    return Position(
        rank=rank,
        place=place,
        user_frame=innermost_user_frame(main.stack),
        stack=main.stack,
        artifact=last.artifact,
        is_still=None if len(threads) < 2 else all(t is not None and _is_same(t.stack, main.stack) for t in threads),
        cpu_share=_cpu_share(process),
        gil_owner=next((thread for thread in last.record.threads if thread.owns_gil), None),
        children=children,
    )


def _is_same(one: Stack, other: Stack) -> bool:
    """The same calls from the same lines; the line inside the innermost function may differ: a loop stays in it."""
    return one[1:] == other[1:] and [(f.function, f.file) for f in one[:1]] == [(f.function, f.file) for f in other[:1]]


def _cpu_share(process: Rank | None) -> float | None:
    if process is None or len(process.looks) < 2:
        return None
    first, last = process.looks[0], process.looks[-1]
    elapsed_s = (last.time_ns - first.time_ns) / 1e9
    return (last.cpu_s - first.cpu_s) / elapsed_s if elapsed_s > 0 else None
