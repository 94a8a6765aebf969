"""A call that all members made, and whose parts do not fit one another.

In: nothing. Out: `Conflict`, found where roots or shares are compared.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Conflict:
    """`ranks` are wrong; `is_open`: some of them are, and nothing tells which."""

    seq: int
    ranks: tuple[int, ...]
    basis: str
    is_open: bool
