"""Stacks of several processes one below the other, with a line of a person or a shell before each.

In: lines, and what tells lines of stacks from others. Out: `Heading`s with the lines below them: `=== rank 3 ===`,
`### rank 3 pid 5011`, `$ py-spy dump --pid 5011  # rank 3`, `==> stack.rank3.txt <==`, `Attaching to process 5011`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_MAX_LINE = 240
# What a line of JSON, or one that is indented below another, begins with.
_INSIDE = re.compile(r"\s|[\[{]\s*[{\"]|[\"\]},]")
_OTHERS = r"(?<![A-Za-z])" + "".join(rf"(?<!{word}{mark})" for word in ("local", "node", "group") for mark in " _-")
_RANK = re.compile(rf"{_OTHERS}rank[ :=#_.\-]{{0,3}}(\d{{1,7}})(?![\w]*:\d)", re.IGNORECASE)
_LOCAL = re.compile(r"\blocal[ _\-]?rank[ :=#_\-]{0,3}(\d{1,4})\b", re.IGNORECASE)
_PID = re.compile(
    r"\bpid[ :=#_\-]{0,3}(\d{1,9})\b"
    r"|\b(?:py-spy|pystack|gdb|cuda-gdb|strace|gcore)\b.{0,80}?\s(?:-p|remote) ?(\d{1,9})\b"
    r"|\bAttaching to (?:process|program: .{0,120}, process) (\d{1,9})|/proc/(\d{1,9})(?:/|\b)",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Headed:
    """Lines below one heading; all None and no text: those before the first."""

    rank: int | None = None
    local_rank: int | None = None
    pid: int | None = None
    title: str = ""
    lines: list[str] = field(default_factory=list)


def split(lines: Iterable[str], is_of_stack: Callable[[str], bool]) -> list[Headed]:
    """In order. A heading right below another, as a shell that echoes its commands writes them, adds to it."""
    parts = [Headed()]
    for line in lines:
        heading = None if not line or len(line) > _MAX_LINE or _INSIDE.match(line) else _heading(line)
        if heading is None or is_of_stack(line):
            parts[-1].lines.append(line)
        elif parts[-1].title and not any(map(is_of_stack, parts[-1].lines)) and _fits(parts[-1], heading):
            parts[-1] = _joined(parts[-1], heading)
        else:
            parts.append(heading)
    return [part for part in parts if any(part.lines)]


def _heading(line: str) -> Headed | None:
    ranks, local, pids = (set(_found(form, line)) for form in (_RANK, _LOCAL, _PID))
    if any(len(found) > 1 for found in (ranks, local, pids)) or not (ranks or local or pids):
        return None
    return Headed(rank=_only(ranks), local_rank=_only(local), pid=_only(pids), title=line)


def _found(form: re.Pattern[str], line: str) -> Iterable[int]:
    return (int(next(filter(None, found.groups()))) for found in form.finditer(line))


def _only(found: set[int]) -> int | None:
    return next(iter(found), None)


def _fits(one: Headed, other: Headed) -> bool:
    pairs = ((one.rank, other.rank), (one.local_rank, other.local_rank), (one.pid, other.pid))
    return all(None in pair or pair[0] == pair[1] for pair in pairs)


def _joined(one: Headed, other: Headed) -> Headed:
    return Headed(
        rank=one.rank if other.rank is None else other.rank,
        local_rank=one.local_rank if other.local_rank is None else other.local_rank,
        pid=one.pid if other.pid is None else other.pid,
        title=other.title,
    )
