"""What every parser returns.

In: nothing. Out: `Parsed`: the records that could be read, and in words what could not.
"""

from dataclasses import dataclass
from typing import Generic, TypeVar

Record = TypeVar("Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed(Generic[Record]):
    """Records in the order of the file; `problems` says, for a person, what of the file could not be read."""

    records: tuple[Record, ...]
    problems: tuple[str, ...] = ()
