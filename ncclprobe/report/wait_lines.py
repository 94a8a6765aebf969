"""Who waits for whom, in a line per process group; groups of a kind whose members wait alike are one line.

In: a `Report`. Out: `WaitLine`s, those about the ranks that the verdict names first. As text:
`7 groups dp_*: ranks 0,2-7 wait for ranks 8-14, themselves waiting, in all_reduce, call 118`.
"""

import re
from dataclasses import dataclass, field

from ncclprobe.model.folding import name_ranks, unfold
from ncclprobe.model.report import GroupState, GroupWait, Report

_NUMBER = re.compile(r"\d+")
_NO_DESCRIPTION = ("", "undefined")
_MAX_NAME = 60  # characters; some groups are named by a hash, and a description is the job's own text


@dataclass(slots=True)
class WaitLine:
    """Members of one or more groups that wait in one op. `is_direct`: for a rank that the verdict names."""

    is_direct: bool
    op: str
    groups: dict[tuple[str, str], GroupState] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    targets: set[int] = field(default_factory=set)
    seqs: set[int | None] = field(default_factory=set)

    def __str__(self) -> str:
        verb = "waits" if len(self.ranks) == 1 else "wait"
        also = "" if self.is_direct else ", itself waiting," if len(self.targets) == 1 else ", themselves waiting,"
        seq = next(iter(self.seqs)) if len(self.seqs) == 1 else None
        call = f", call {seq}" if seq is not None else ""
        return f"{self._who()}: {name_ranks(self.ranks)} {verb} for {name_ranks(self.targets)}{also} in {self.op}{call}"

    def add(self, group: GroupState, wait: GroupWait, named: set[int]) -> None:
        """Takes in one wait of a group."""
        targets = unfold(wait.waits_for)
        self.groups[group.name, group.ranks] = group
        self.ranks |= unfold(wait.ranks)
        self.targets |= targets & named or targets
        self.seqs.add(wait.seq)

    def _who(self) -> str:
        group = next(iter(self.groups.values()))
        if len(self.groups) == 1:
            return _label(group) if _is_described(group) else f"group {_label(group)}"
        if not _is_described(group):
            return f"{len(self.groups)} groups without a description"
        labels = {_label(group) for group in self.groups.values()}
        return f"{len(self.groups)} groups {labels.pop() if len(labels) == 1 else _kind(group)}"


def fold_waits(report: Report) -> list[WaitLine]:
    """All waits that lead to a rank the verdict names or suspects, the direct ones first."""
    named = set(report.verdict.guilty_ranks)
    lines: dict[tuple[bool, bool, str, str], WaitLine] = {}
    for group in report.groups:
        for wait in group.waits:
            if wait.hops is None:
                continue
            is_direct, op = wait.hops == 1, wait.op.partition(" ")[0]  # `recv 1<-0` carries its peers
            # Named ranks that wait for one another are the ring itself; their victims come after.
            key = (not is_direct, named.isdisjoint(unfold(wait.ranks)), _kind(group), op)
            lines.setdefault(key, WaitLine(is_direct, op)).add(group, wait, named)
    return [lines[key] for key in sorted(lines)]


def _is_described(group: GroupState) -> bool:
    return group.description not in _NO_DESCRIPTION


def _label(group: GroupState) -> str:
    return (group.description if _is_described(group) else group.name)[:_MAX_NAME]


def _kind(group: GroupState) -> str:
    """Descriptions that differ in a number only are of one kind: `dp_3` is a `dp_*`."""
    return _NUMBER.sub("*", _label(group)) if _is_described(group) else ""
