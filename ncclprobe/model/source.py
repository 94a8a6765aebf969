"""The user's source code, as far as it says which ranks reach a line.

In: nothing. Out: `SourceFile` with `Branch`es, each taken by a `RankSet`, and `Way`s past its lines.
"""

from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSet:
    """The given ranks, or all but them; by rank inside the host where `is_local`."""

    ranks: tuple[int, ...]
    is_local: bool = False
    is_all_but: bool = False

    def admits(self, rank: int, local_rank: int | None) -> bool | None:
        """Whether the rank is in the set; None when that needs a local rank that is not known."""
        number = local_rank if self.is_local else rank
        return None if number is None else (number in self.ranks) != self.is_all_but


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """Lines `first_line` to `last_line` run only on the ranks of `taken_by`, because of `text` at `line`."""

    first_line: int
    last_line: int
    line: int
    text: str
    taken_by: RankSet


class WayKind(str, Enum):
    """How a rank leaves a loop, or comes back to its start. END: there is nothing left to loop over."""

    CONTINUE = "continue"
    BREAK = "break"
    END = "end"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """Who takes it at `line` misses lines `first_line` to `last_line`, inside the loop that starts at `loop_line`.

    `condition`: what it depends on inside the loop, as `if loss > limit (line 12)`. `is_same_for_all`: the loop counts
    to a number that all ranks share, so it ends everywhere alike.
    """

    kind: WayKind
    line: int
    condition: str | None
    first_line: int
    last_line: int
    loop_line: int
    is_same_for_all: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file. Lines count from 1."""

    lines: tuple[str, ...]
    branches: tuple[Branch, ...]
    ways: tuple[Way, ...] = ()

    def line(self, number: int | None) -> str | None:
        """The text of a line without its indentation; None where the file has no such line."""
        if number is None or not 1 <= number <= len(self.lines):
            return None
        return self.lines[number - 1].strip()[:200]

    def branch_at(self, number: int | None) -> Branch | None:
        """The innermost rank-dependent branch that the line lies in."""
        around = [b for b in self.branches if number is not None and b.first_line <= number <= b.last_line]
        return max(around, key=lambda branch: (branch.first_line, -branch.last_line), default=None)

    def ways_past(self, number: int, stands_at: int) -> tuple[Way, ...]:
        """By which a rank that now stands at one line of a function can have got past line `number` of it.

        The end of a loop that counts alike on all ranks is left out where the loop has another way out.
        """
        past = [
            way for way in self.ways if way.first_line <= number <= way.last_line and _leads_to(way, stands_at, number)
        ]
        others = [way for way in past if not way.is_same_for_all]
        return tuple(others or past)


def _leads_to(way: Way, stands_at: int, number: int) -> bool:
    """After a `continue` the rank comes to the start of the loop again, before the line that it has jumped over."""
    if way.kind is WayKind.CONTINUE:
        return way.loop_line <= stands_at < number
    return stands_at > way.last_line
