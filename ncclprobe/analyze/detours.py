"""The statement by which a rank got past a call that the others made: a `continue`, a `break`, the end of a loop.

In: two stacks that part in one function, and the user's source. Out: a `Detour`, None where there is no way or several.
"""

from collections.abc import Callable
from dataclasses import dataclass

from ncclprobe.analyze.classes import parting
from ncclprobe.model.evidence import Artifact
from ncclprobe.model.frames import Frame, Stack
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import CodeLocation
from ncclprobe.model.source import SourceFile, Way, WayKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Detour:
    """`place`: the statement; `past`: the line it leads past, where the others are; `artifact`: the source."""

    way: Way
    place: CodeLocation
    past: int
    artifact: Artifact

    @property
    def leaves_loop(self) -> bool:
        """Whether the rank is out of the loop that the others are in."""
        return self.way.kind is not WayKind.CONTINUE

    @property
    def says(self) -> str:
        """In a few words, after the name of the ranks: `left the loop at line 74 (break)`."""
        line = self.way.line
        if self.way.kind is WayKind.END:
            return f"left the loop of line {line}, at its end"
        if self.way.kind is WayKind.BREAK:
            return f"left the loop of line {self.way.loop_line} by break, line {line}"
        return f"went past line {self.past} by continue, line {line}"


def find_detour(
    rank: int, own: Stack, theirs: Stack, source: Callable[[int, Frame], Sourced[SourceFile] | None]
) -> Detour | None:
    """`own`: where the rank called instead; `theirs`: where the others made the call it did not make."""
    users = [tuple(frame for frame in stack if frame.is_user_code) for stack in (own, theirs)]
    if not all(users):
        return None
    here, there = parting(users[0], users[1])
    if (here.file, here.short_function) != (there.file, there.short_function) or not here.line or not there.line:
        return None
    found = source(rank, here)
    ways = found.record.ways_past(there.line, here.line) if found else ()
    if found is None or len(ways) != 1:
        return None
    way = ways[0]
    place = CodeLocation(
        rank=rank,
        file=here.file,
        line=way.line,
        function=here.function,
        source_line=found.record.line(way.line),
        condition=way.condition,
    )
    return Detour(way=way, place=place, past=there.line, artifact=found.artifact)
