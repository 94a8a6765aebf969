"""Whether anything moved: between two dumps of a rank, or just before its dump was read.

In: the dumps to analyse, and those of an earlier look. Out: `Looks`.

One dump is a snapshot: a rank that has not come may be late by a moment. Two of them, seconds apart, tell: a rank whose
recorder went on is at work, and when nothing moved on any rank, nothing will.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from ncclprobe.model.collectives import Recording
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.records import Sourced

_LONG_NS = 5_000_000_000  # steps without any collective for longer are rare, and waiting costs little


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two dumps of one rank. `calls`, `ended`: how many it has issued and finished in between, at least."""

    rank: int
    earlier: Artifact
    later: Artifact
    calls: int
    ended: int

    @property
    def has_moved(self) -> bool:
        """Whether the rank went on."""
        return self.calls > 0 or self.ended > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Looks:
    """`is_frozen`: nothing moves any more on any rank; False where something did; None where it cannot be told."""

    pairs: tuple[Pair, ...] = ()
    is_frozen: bool | None = None

    @property
    def moved(self) -> tuple[Pair, ...]:
        """Ranks that went on between the looks."""
        return tuple(pair for pair in self.pairs if pair.has_moved)


def compare_looks(dumps: tuple[Sourced[Recording], ...], earlier: Iterable[Sourced[Recording]]) -> Looks:
    """`earlier` are dumps of the same ranks at an earlier look."""
    latest = {sourced.artifact.rank: sourced for sourced in dumps}
    found = (_pair(sourced, latest[sourced.artifact.rank]) for sourced in earlier if sourced.artifact.rank in latest)
    pairs = tuple(sorted((pair for pair in found if pair), key=lambda pair: (pair.rank, pair.earlier.path)))
    return Looks(pairs=pairs, is_frozen=_is_frozen(dumps, pairs))


def _pair(earlier: Sourced[Recording], later: Sourced[Recording]) -> Pair | None:
    """None where they cannot be of one run of the process: counters never go back."""
    one, other = _counts(earlier.record), _counts(later.record)
    rank = later.artifact.rank
    pids = {earlier.artifact.pid, later.artifact.pid} - {None}
    if rank is None or len(pids) > 1 or any(other.get(key, count) < count for key, count in one.items()):
        return None
    # Of a group that is new to the dump it is only known that something was done there.
    gains = {key: count - one.get(key, count - 1) for key, count in other.items()}
    # In a dump of active calls alone what has ended is gone; the recorder's own counters still tell.
    has_counted = earlier.record.statuses != later.record.statuses
    return Pair(
        rank=rank,
        earlier=earlier.artifact,
        later=later.artifact,
        calls=sum(gain for (kind, *_), gain in gains.items() if kind == "issued"),
        ended=max(sum(gain for (kind, *_), gain in gains.items() if kind == "ended"), int(has_counted)),
    )


def _counts(recording: Recording) -> dict[tuple[str, str, bool], int]:
    """How far the rank has come in each group, in collectives and in messages, by the numbers of its calls."""
    counts: dict[tuple[str, str, bool], int] = {}
    names = [group.name for group in recording.groups]
    rows = zip(recording.group_of, recording.seq, recording.is_p2p, recording.is_completed, strict=True)
    for group, seq, is_p2p, is_completed in rows:
        for kind in ("issued", "ended") if is_completed else ("issued",):
            key = kind, names[group], bool(is_p2p)
            if seq > counts.get(key, -1):
                counts[key] = seq
    return counts


def _is_frozen(dumps: tuple[Sourced[Recording], ...], pairs: tuple[Pair, ...]) -> bool | None:
    if any(pair.has_moved for pair in pairs):
        return False
    have_stood = {pair.rank for pair in pairs if _gap_ns(pair) > _LONG_NS}
    ages_ns = [age for sourced in dumps if (age := _age_ns(sourced)) is not None]
    if dumps and {sourced.artifact.rank for sourced in dumps} <= have_stood:
        return True
    if any(age <= _LONG_NS for age in ages_ns):
        return None if pairs else False
    return True if ages_ns and len(ages_ns) == len(dumps) else None


def _gap_ns(pair: Pair) -> int:
    return (pair.later.end_ns or 0) - (pair.earlier.end_ns or 0) if pair.earlier.end_ns else 0


def _age_ns(sourced: Sourced[Recording]) -> int | None:
    """How long before it was read the newest call was issued."""
    newest_ns = max(sourced.record.created_ns, default=0)
    return sourced.artifact.end_ns - newest_ns if sourced.artifact.end_ns is not None and newest_ns > 0 else None
