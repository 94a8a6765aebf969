"""How ranks ended, and which of them ended by itself.

In: `Logs`. Out: for each rank its first own failure; who of them failed first. What a rank prints after its watchdog, a
lost connection or the launcher stopped it is an echo: the failure is somebody else's.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ncclprobe.analyze.alibis import find_alibis
from ncclprobe.analyze.logs import Logs, Said, is_before, moment
from ncclprobe.model.log import (
    Aborted,
    Activity,
    Died,
    Failure,
    PeerLost,
    Raised,
    RemoteError,
    StoppedByLauncher,
    StoreTimeout,
    StoreUnreachable,
    WorkTimeout,
)

_ECHOES = (WorkTimeout, StoreTimeout, StoreUnreachable, PeerLost, RemoteError, Aborted, StoppedByLauncher)
_SIGABRT, _SIGTERM = 6, 15
_OWN_SIGNALS = frozenset({4, 7, 8, 11})  # SIGILL, SIGBUS, SIGFPE, SIGSEGV: no launcher sends these
_TOGETHER_NS = 1_000_000_000
_ALIKE_NS = 60_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """A rank's own failure: the line that tells of it, and the others that agree.

    `is_inferred`: the line names nobody; all other ranks lived on.
    """

    rank: int
    said: Said
    also: tuple[Said, ...] = ()
    is_inferred: bool = False

    @property
    def failure(self) -> Failure | None:
        """What kind of exception it was; None when only the end of the process is told."""
        what = self.said.record.what
        return what.failure if isinstance(what, Raised) else None


def find_fates(logs: Logs, expected: Iterable[int] = ()) -> tuple[Fate, ...]:
    """Ranks that failed by themselves, the first in time first. `expected`: all ranks of the job."""
    failed = {said.record.rank for said in logs.of(Raised, Died) if said.record.rank is not None}
    waiting = find_alibis(logs)
    fates = [_fate(logs, rank, has_alibi=rank in waiting) for rank in sorted(failed)]
    fates += _of_containers(logs, failed)
    found = tuple(sorted((fate for fate in fates if fate), key=lambda fate: moment(fate.said)))
    return found or _by_elimination(logs, tuple(expected))


def _by_elimination(logs: Logs, expected: tuple[int, ...]) -> tuple[Fate, ...]:
    """An exception that nobody signed is that of the one rank that was not waiting when the others gave up."""
    waits = [said for said in logs.of(WorkTimeout) if said.record.rank is not None]
    rest = sorted(set(expected) - {said.record.rank for said in waits})
    went_on = [said for said in logs.of(Activity) if said.record.rank is None and _is_training(said)]
    nobodys = [
        said
        for said in logs.of(Raised)
        if said.record.rank is None
        and not _is_echo(said)
        and not any(is_before(said, later) for later in went_on)
        and all(_may_be_of(logs, said, rank) for rank in rest)
    ]
    early = [said for said in nobodys if waits and all(is_before(said, wait) for wait in waits)]
    return (Fate(rank=rest[0], said=early[0], is_inferred=True),) if len(rest) == 1 and early else ()


def _may_be_of(logs: Logs, said: Said, rank: int) -> bool:
    """A line from a host, or a pod, that is not the rank's is somebody else's."""
    return said.record.host is None or logs.host_of.get(rank) in (None, said.record.host)


def _of_containers(logs: Logs, told: set[int]) -> Iterator[Fate]:
    """A container that was killed takes all its ranks with it; none of them can have waited until a timeout."""
    for said, what in logs.facts(Died):
        event = said.record
        is_container = what.is_memory and "OOMKilled" in what.reason and event.host and event.pid is None
        ranks = logs.ranks_on(event.host or "") if is_container and event.rank is None else ()
        if ranks and not told & set(ranks) and not any(logs.of_rank(rank, WorkTimeout) for rank in ranks):
            yield from (Fate(rank=rank, said=said) for rank in ranks)
            told |= set(ranks)


def _fate(logs: Logs, rank: int, *, has_alibi: bool) -> Fate | None:
    is_waiting = bool(logs.of_rank(rank, WorkTimeout))
    own = [
        said
        for said in logs.of_rank(rank, Raised, Died)
        if not _is_echo(said)
        and not (is_waiting and _is_aside(said))
        and not (has_alibi and _is_of_program(said.record.what))
    ]
    echoes = logs.of_rank(rank, *_ECHOES) + [said for said in logs.of_rank(rank, Raised, Died) if _is_echo(said)]
    went_on = [said for said in logs.of_rank(rank, Activity) if _is_training(said)]
    first = [
        said
        for said in own
        if not any(is_before(echo, said) and not _is_reason_of(said, echo) for echo in echoes)
        and not _is_exit_after(said, echoes)
        and not any(is_before(said, later) for later in went_on)
    ]
    told = sorted(first, key=lambda said: (not isinstance(said.record.what, Raised), moment(said)))
    if not told or _was_aborted(logs, told[0]):
        return None
    return Fate(rank=rank, said=told[0], also=tuple(told[1:]))


def _is_reason_of(said: Said, stop: Said) -> bool:
    """Whether the launcher stopped the ranks because of this end, though it tells it later."""
    what = said.record.what
    is_own = isinstance(what, Died) and (what.is_first or what.is_memory or what.signal in _OWN_SIGNALS)
    return is_own and isinstance(stop.record.what, StoppedByLauncher)


def _is_exit_after(said: Said, echoes: list[Said]) -> bool:
    """Whether it is only told that the rank exited, which an exception explains that follows from another's end."""
    what = said.record.what
    is_exit = isinstance(what, Died) and what.signal is None and not what.is_memory
    return is_exit and any(isinstance(echo.record.what, Raised) for echo in echoes)


def _is_training(said: Said) -> bool:
    """A step after an exception: the program has handled it."""
    return isinstance(said.record.what, Activity) and said.record.what.phase == "training"


def _is_echo(said: Said) -> bool:
    what = said.record.what
    if isinstance(what, Raised):
        return what.failure.is_echo
    return isinstance(what, Died) and (what.signal == _SIGTERM or what.exit_status == 0)


def _is_of_program(what: object) -> bool:
    """An exception that a program can handle and go on after; a GPU's error stays, and so does an end."""
    return isinstance(what, Raised) and what.failure in (Failure.PYTHON, Failure.GPU_MEMORY)


def _is_aside(said: Said) -> bool:
    """What ended a background thread did not end the rank, which waits where its main thread is."""
    return isinstance(said.record.what, Raised) and said.record.what.is_aside


def _was_aborted(logs: Logs, said: Said) -> bool:
    """Torch ends a process by SIGABRT, or by an exit status, after its watchdog gave up: any rank's will do."""
    what = said.record.what
    if not isinstance(what, Died) or what.is_memory or what.signal not in (None, _SIGABRT):
        return False
    return any(is_before(timeout, said) is not False for timeout in logs.of(WorkTimeout, StoreTimeout))


def died_first(fates: tuple[Fate, ...]) -> tuple[Fate, ...]:
    """The first, with those that failed in the same way at the same time; all of them where no time tells."""
    if not fates:
        return ()
    first = fates[0]
    return tuple(fate for fate in fates if fate is first or not _is_later(first, fate))


def _is_later(first: Fate, other: Fate) -> bool:
    """What several ranks say in the same words within a minute has one reason; which of them is first means nothing."""
    one, two = first.said.record.when_ns, other.said.record.when_ns
    is_alike = _words(first) is not None and _words(first) == _words(other)
    if one is not None and two is not None:
        return two - one > (_ALIKE_NS if is_alike else _TOGETHER_NS)
    if is_alike:
        return False
    return is_before(first.said, other.said) is True


def _words(fate: Fate) -> tuple[str, str] | None:
    what = fate.said.record.what
    return (what.exception, what.message) if isinstance(what, Raised) and what.exception else None
