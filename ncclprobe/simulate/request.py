"""What to simulate.

In: a person's options. Out: a `Request`, which alone decides every byte; UsageError for what cannot be.
"""

import re
from dataclasses import dataclass
from random import Random

from ncclprobe.model.errors import UsageError
from ncclprobe.simulate.versions import NEWEST

MAX_RANKS = 1 << 17
_RANGE = re.compile(r"(\d{1,7})(?:-(\d{1,7}))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """`name` is a scenario, or a cause of which one is chosen by `seed`; `job` None likewise.

    `steps`: how many steps before the fault the recorders still hold (None: as many as a glance needs). `has_wrapped`:
    the rings are too small to reach back to the fault. `is_active_only`: calls that have ended are not in the dumps,
    so that a rank with none outstanding has an empty one. `skew_s`: the dumps of a running job were taken within it.
    `drop`: what became of some dumps, as in `dropped_ranks`.
    """

    name: str
    ranks: int
    seed: int = 0
    job: str | None = None
    steps: int | None = None
    version: str = NEWEST
    is_json: bool = False
    has_frames: bool = True
    has_wrapped: bool = False
    is_active_only: bool = False
    skew_s: float = 0.0
    drop: str = ""

    def __post_init__(self) -> None:
        if not 2 <= self.ranks <= MAX_RANKS:
            raise UsageError(f"{self.ranks} ranks cannot be simulated", f"choose 2 to {MAX_RANKS}")
        if not 0 <= self.skew_s <= 60:
            raise UsageError(f"a skew of {self.skew_s:g} s cannot be simulated", "choose 0 to 60")

    def rng(self, purpose: str) -> Random:
        """A generator for one purpose: another use of chance elsewhere does not change this one."""
        return Random(f"{self.seed}/{self.name}/{self.ranks}/{self.job}/{purpose}")  # noqa: S311 - no secret


def dropped_ranks(request: Request, guilty: tuple[int, ...]) -> frozenset[int]:
    """Of `3`: so many, by chance. Of `guilty`: those. Of `3,` or `0,5-7`: these. UsageError for anything else."""
    text = request.drop.strip()
    if not text:
        return frozenset()
    if text == "guilty":
        return frozenset(guilty)
    if text.isdecimal():
        if int(text) >= request.ranks:
            raise UsageError(f"of {request.ranks} dumps {text} cannot be dropped", "leave at least one")
        return frozenset(request.rng("drop").sample(range(request.ranks), int(text)))
    return _listed(text, request.ranks)


def _listed(text: str, ranks: int) -> frozenset[int]:
    dropped: set[int] = set()
    for item in filter(None, (item.strip() for item in text.split(","))):
        match = _RANGE.fullmatch(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if not 0 <= first <= last < ranks:
            raise UsageError(f"{item!r} names no ranks of a job of {ranks}", "write a number, guilty, or 0,5-7")
        dropped.update(range(first, last + 1))
    if len(dropped) == ranks:
        raise UsageError("no dump would be left", "leave at least one")
    return frozenset(dropped)
