"""The user's source code, as far as it says which ranks reach a line.

In: nothing. Out: `SourceFile` with `Branch`es, each taken by a `RankSet`.
"""

from dataclasses import dataclass


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file. Lines count from 1."""

    lines: tuple[str, ...]
    branches: tuple[Branch, ...]

    def line(self, number: int | None) -> str | None:
        """The text of a line without its indentation; None where the file has no such line."""
        if number is None or not 1 <= number <= len(self.lines):
            return None
        return self.lines[number - 1].strip()[:200]

    def branch_at(self, number: int | None) -> Branch | None:
        """The innermost rank-dependent branch that the line lies in."""
        around = [b for b in self.branches if number is not None and b.first_line <= number <= b.last_line]
        return max(around, key=lambda branch: (branch.first_line, -branch.last_line), default=None)
