"""Whether two sequences of calls that part go on alike, once something is changed on one side.

In: what most and what the few issued from the divergence on, as tokens. Out: the `Change`s that make all that follows
agree, the likelier first.

Each change also says by how many calls the few should now be ahead of the others. All wait at the same place of the
program in the end, so of changes that both fit the one whose count comes true is right: `A B A` against `B A` may be
two calls swapped, or the first left out, and one call less says which.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

_MAX_SHIFT = 16
_MIN_REALIGNED = 2


class Kind(str, Enum):
    """What the few did, compared with most."""

    SWAPPED = "swapped"
    REPLACED = "replaced"
    ADDED = "added"
    LEFT_OUT = "left out"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`shift` calls were added or left out; `agreeing` calls after that are the same on both sides."""

    kind: Kind
    agreeing: int
    shift: int = 0

    @property
    def ahead(self) -> int:
        """How many calls more the few have issued by the same place of the program."""
        return {Kind.ADDED: self.shift, Kind.LEFT_OUT: -self.shift}.get(self.kind, 0)


def find_changes(most: Sequence[int], few: Sequence[int], *, is_count_known: bool = True) -> list[Change]:
    """All that fit, those whose count comes true first. Not `is_count_known`: later calls may be missing."""
    fitting = [*_swapped(most, few), *_replaced(most, few), *_shifted(most, few)]
    if is_count_known:
        fitting.sort(key=lambda change: change.ahead != len(few) - len(most))
    return fitting


def _swapped(most: Sequence[int], few: Sequence[int]) -> Iterator[Change]:
    overlap = min(len(most), len(few))
    if overlap >= _MIN_REALIGNED and few[:2] == most[1::-1] and few[2:overlap] == most[2:overlap]:
        yield Change(kind=Kind.SWAPPED, agreeing=overlap - 2)


def _replaced(most: Sequence[int], few: Sequence[int]) -> Iterator[Change]:
    overlap = min(len(most), len(few))
    if overlap >= _MIN_REALIGNED and most[1:overlap] == few[1:overlap]:
        yield Change(kind=Kind.REPLACED, agreeing=overlap - 1)


def _shifted(most: Sequence[int], few: Sequence[int]) -> Iterator[Change]:
    for shift in range(1, _MAX_SHIFT + 1):
        for kind, longer, shorter in ((Kind.ADDED, few, most), (Kind.LEFT_OUT, most, few)):
            overlap = min(len(longer) - shift, len(shorter))
            if overlap >= _MIN_REALIGNED and longer[shift : shift + overlap] == shorter[:overlap]:
                yield Change(kind=kind, agreeing=overlap, shift=shift)
