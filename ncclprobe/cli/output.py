"""Where a report and everything else go.

In: a report and a format. Out: the report alone on standard output or in a file, progress on standard error, a status.
"""

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ncclprobe.model.errors import UsageError
from ncclprobe.model.report import Cause, Report

if TYPE_CHECKING:
    from ncclprobe.collect.answer import Answer
    from ncclprobe.collect.hosts import Host
    from ncclprobe.report.renderer import Renderer


def renderer_for(name: str) -> "Renderer":
    """The renderer of a format; UsageError that lists the formats otherwise."""
    from ncclprobe.report.renderer import find_renderers

    renderers = find_renderers()
    if name not in renderers:
        raise UsageError(f"there is no format {name!r}", f"choose one of: {', '.join(sorted(renderers))}")
    return renderers[name]


def show(report: Report, renderer: "Renderer", out: Path | None, no_color: bool) -> int:
    """Writes the report; returns the exit status it stands for."""
    has_color = not no_color and not os.environ.get("NO_COLOR")
    if out is None:
        renderer.write(report, sys.stdout, None, has_color and sys.stdout.isatty())
        sys.stdout.flush()
        return status_of(report)
    try:
        with out.open("w", encoding="utf-8") as file:
            renderer.write(report, file, None, False)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", "choose another place with --out") from None
    return status_of(report)


def status_of(report: Report) -> int:
    """0 nothing hung, 1 a verdict with a cause, 3 inconclusive or no usable evidence."""
    return {Cause.PROGRESSING: 0, Cause.INCONCLUSIVE: 3}.get(report.verdict.cause, 1)


class Progress:
    """One line on standard error per event; nothing when quiet."""

    def __init__(self, hosts: "tuple[Host, ...]", quiet: bool, verbose: int) -> None:
        self._left = len(hosts)
        self._quiet = quiet
        self._verbose = verbose
        self._started = time.monotonic()
        if not quiet:
            where = hosts[0].name if len(hosts) == 1 else f"{len(hosts)} hosts"
            print(f"collecting evidence from {where} ...", file=sys.stderr, flush=True)

    def on_answer(self, answer: "Answer") -> None:
        """A host has answered, or failed to."""
        self._left -= 1
        if self._quiet:
            return
        waiting = f", waiting for {self._left} more" if self._left else ""
        self._say(f"{answer.host}: {answer.outcome.outcome}{waiting}")
        for gap in answer.gaps if self._verbose else ():
            self._say(f"  {gap.who}: {gap.what}: {gap.why}")

    def _say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._started:5.1f} s] {text}", file=sys.stderr, flush=True)
