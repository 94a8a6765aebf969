"""Ranks that are at the same place, together.

In: positions of ranks, or their stacks. Out: `StackClass`es, the smallest first: the odd one out is the suspect.

Stacks are the same when their calls are, from the same lines: only inside the innermost function the line may differ,
and C frames, whose addresses differ in every process, do not count.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Position
from ncclprobe.model.folding import fold_short
from ncclprobe.model.frames import Frame, Stack, trace_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StackClass:
    """Ranks at one place. `example` is the position of the first of them; `lines` those of its innermost function.

    `frame`: the user's line, else the one that says what they are doing; where a larger class does the same
    there, the outermost frame that it has not.
    """

    ranks: tuple[int, ...]
    example: Position
    lines: tuple[int, ...]
    frame: Frame | None

    @property
    def phase(self) -> Phase:
        """What they are doing."""
        return self.example.phase

    @property
    def doing(self) -> str:
        """The phase and the line: `in a collective at train.py:31`."""
        line = f":{self.frame.line}" if self.frame and self.frame.line else ""
        name = self.frame.file.rsplit("/", 1)[-1] or self.frame.function if self.frame else ""
        return f"{self.phase} at {name}{line}" if name else str(self.phase)

    def __str__(self) -> str:
        return f"{fold_short(self.ranks)}: {self.doing}"


def find_classes(positions: Mapping[int, Position]) -> tuple[StackClass, ...]:
    """Every rank is in one class; of equal size, those with lower ranks first."""
    together: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank in sorted(positions):
        position = positions[rank]
        together[position.phase, trace_of(position.stack)].append(rank)
    classes = [_class([positions[rank] for rank in ranks]) for ranks in together.values()]
    return tuple(_distinct(sorted(classes, key=lambda found: (len(found.ranks), found.ranks))))


def parting(one: Stack, other: Stack) -> tuple[Frame, Frame]:
    """The outermost frames of two stacks that differ; the innermost ones where none does."""
    pairs = zip(reversed(one), reversed(other), strict=False)
    return next(((own, theirs) for own, theirs in pairs if own != theirs), (one[0], other[0]))


def _class(positions: list[Position]) -> StackClass:
    example = positions[0]
    inner = (next((f.line for f in p.stack if not f.is_native), None) for p in positions)
    return StackClass(
        ranks=tuple(position.rank for position in positions),
        example=example,
        lines=tuple(sorted({line for line in inner if line is not None})),
        frame=example.frame,
    )


def _distinct(classes: list[StackClass]) -> Iterator[StackClass]:
    """Two classes that do the same below one line of the user's are told apart by where they part."""
    largest = {(found.phase, found.frame): found for found in classes}  # the last of each: they come by size
    for found in classes:
        other = largest[found.phase, found.frame]
        if other is found or not found.example.stack or not other.example.stack:
            yield found
        else:
            yield replace(found, frame=parting(found.example.stack, other.example.stack)[0])
