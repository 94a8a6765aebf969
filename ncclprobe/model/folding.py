"""Sets of ranks as people write them.

In: rank numbers. Out: folded text, `0-3,7`, and back.
"""

from collections.abc import Iterable
from itertools import groupby

_SHORT = 40  # characters, so that a sentence about thousands of ranks stays a sentence


def fold(ranks: Iterable[int]) -> str:
    """`[0, 1, 2, 5]` -> `"0-2,5"`; empty text for no rank."""
    runs = groupby(enumerate(sorted(set(ranks))), key=lambda pair: pair[1] - pair[0])
    spans = ([rank for _, rank in run] for _, run in runs)
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


def unfold(text: str) -> set[int]:
    """`"0-2,5"` -> `{0, 1, 2, 5}`: what `fold` made; ValueError for other text."""
    spans = (span.partition("-") for span in text.split(",") if span)
    return {rank for first, _, last in spans for rank in range(int(first), int(last or first) + 1)}


def fold_short(ranks: Iterable[int]) -> str:
    """The same, cut after about 40 characters: `0,2,4,... (2048 ranks)`."""
    members = set(ranks)
    text = fold(members)
    return text if len(text) <= _SHORT else f"{text[:_SHORT].rpartition(',')[0]},... ({len(members)} ranks)"


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3`, `ranks 1-3,7`, or `no rank`; cut as in `fold_short`."""
    members = set(ranks)
    if not members:
        return "no rank"
    return f"rank{'s' if len(members) > 1 else ''} {fold_short(members)}"
