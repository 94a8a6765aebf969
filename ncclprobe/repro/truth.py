"""What is planted in a reproducer, and whether a verdict found it.

In: a `Repro`, a `Verdict`. Out: `Truth`, read from the program's source, and right or wrong with the reason.
"""

import ast
from dataclasses import dataclass
from pathlib import PurePath

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.report import Cause, Verdict
from ncclprobe.repro.reproducer import Repro

MARKER = "# planted:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """The right answer. `file` is a bare name, since the job runs a copy; `line` counts from 1.

    `line` is None and `function` empty where no line of the program is to blame.
    """

    cause: Cause
    guilty_ranks: tuple[int, ...]
    file: str
    line: int | None
    function: str

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"


def truth_of(repro: Repro, ranks: int) -> Truth:
    """What a diagnosis of `repro` on `ranks` ranks must find. NcclprobeError unless one line is marked."""
    source = repro.path.read_text(encoding="utf-8")
    marked = [number for number, line in enumerate(source.splitlines(), start=1) if MARKER in line]
    has_line = repro.has_line and bool(repro.guilty_ranks)
    if len(marked) > 1 or (has_line and not marked):
        raise NcclprobeError(
            f"{repro.path.name} marks {len(marked)} lines with {MARKER!r}", "mark the guilty line and no other"
        )
    line = marked[0] if has_line else None
    return Truth(
        cause=repro.cause,
        guilty_ranks=tuple(rank for rank in repro.guilty_ranks if rank < ranks),
        file=repro.path.name,
        line=line,
        function=_function_at(source, line) if line is not None else "",
    )


def _function_at(source: str, line: int) -> str:
    """The innermost function around `line`; `<module>` when there is none, as in a stack."""
    functions = [
        node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    around = [node for node in functions if node.lineno <= line <= (node.end_lineno or node.lineno)]
    return max(around, key=lambda node: node.lineno).name if around else "<module>"


def is_planted(verdict: Verdict, truth: Truth) -> tuple[bool, str]:
    """Whether `verdict` has the planted cause, just the guilty ranks, and the line of one of them; and the reason."""
    if verdict.cause is not truth.cause:
        return False, f"the cause is {verdict.cause}, planted is {truth.cause}"
    if set(verdict.guilty_ranks) != set(truth.guilty_ranks):
        return False, f"it blames {name_ranks(verdict.guilty_ranks)}, guilty is {name_ranks(truth.guilty_ranks)}"
    if truth.line is None:
        return True, f"{truth.cause} by {name_ranks(truth.guilty_ranks)}, as planted"
    # A call that the guilty never made is shown where the others make it.
    is_shown_by_others = truth.cause is Cause.COLLECTIVE_SKIPPED
    wheres = [where for where in verdict.where if is_shown_by_others or where.rank in truth.guilty_ranks]
    places = {f"{PurePath(where.file).name}:{where.line}" for where in wheres}
    if truth.place not in places:
        return False, f"it points to {', '.join(sorted(places)) or 'no line'}, planted is {truth.place}"
    return True, f"{truth.cause} by {name_ranks(truth.guilty_ranks)} at {truth.place}, as planted"
