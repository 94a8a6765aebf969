"""How ranks ended, and which of them ended by itself.

In: `Logs`. Out: for each rank its first own failure; who of them failed first. What a rank prints after its watchdog, a
lost connection or the launcher stopped it is an echo: the failure is somebody else's.
"""

from dataclasses import dataclass

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
_TOGETHER_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """A rank's own failure: the line that tells of it, and the others that agree."""

    rank: int
    said: Said
    also: tuple[Said, ...] = ()

    @property
    def failure(self) -> Failure | None:
        """What kind of exception it was; None when only the end of the process is told."""
        what = self.said.record.what
        return what.failure if isinstance(what, Raised) else None


def find_fates(logs: Logs) -> tuple[Fate, ...]:
    """Ranks that failed by themselves, the first in time first."""
    failed = {said.record.rank for said in logs.of(Raised, Died) if said.record.rank is not None}
    fates = (_fate(logs, rank) for rank in sorted(failed))
    return tuple(sorted((fate for fate in fates if fate), key=lambda fate: moment(fate.said)))


def _fate(logs: Logs, rank: int) -> Fate | None:
    own = [said for said in logs.of_rank(rank, Raised, Died) if not _is_echo(said)]
    echoes = logs.of_rank(rank, *_ECHOES) + [said for said in logs.of_rank(rank, Raised, Died) if _is_echo(said)]
    went_on = [said for said in logs.of_rank(rank, Activity) if _is_training(said)]
    first = [
        said
        for said in own
        if not any(is_before(echo, said) for echo in echoes) and not any(is_before(said, later) for later in went_on)
    ]
    told = sorted(first, key=lambda said: (not isinstance(said.record.what, Raised), moment(said)))
    if not told or _was_aborted(logs, told[0]):
        return None
    return Fate(rank=rank, said=told[0], also=tuple(told[1:]))


def _is_training(said: Said) -> bool:
    """A step after an exception: the program has handled it."""
    return isinstance(said.record.what, Activity) and said.record.what.phase == "training"


def _is_echo(said: Said) -> bool:
    what = said.record.what
    if isinstance(what, Raised):
        return what.failure.is_echo
    return isinstance(what, Died) and (what.signal == _SIGTERM or what.exit_status == 0)


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
    one, two = first.said.record.when_ns, other.said.record.when_ns
    if one is not None and two is not None:
        return two - one > _TOGETHER_NS
    return is_before(first.said, other.said) is True
