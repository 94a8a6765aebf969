"""What a reproducer is.

In: nothing. Out: `Repro`, the constant that each reproducer's module defines.
"""

from dataclasses import dataclass
from pathlib import Path

from ncclprobe.model.report import Cause

DEFAULT_STEP = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Repro:
    """A training program with a planted hang, and the verdict it must yield.

    `summary` is one line for `--list`, `needs` what the machine must have, `expects` what a person will see. `program`
    is a file in `programs/` that keeps that folder's contract; the guilty line in it carries `# planted:`.
    """

    name: str
    summary: str
    cause: Cause
    guilty_ranks: tuple[int, ...]
    needs: str
    expects: str
    program: str
    default_ranks: int = 4
    min_ranks: int = 2

    @property
    def path(self) -> Path:
        """The program's source."""
        return Path(__file__).with_name("programs") / self.program
