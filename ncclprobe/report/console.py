"""The report for a person at a terminal: one screen, the answer first.

In: a `Report`. Out: text through Rich. What comes from logs and code enters as `Text`, never as markup.
"""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ncclprobe.model.folding import fold_short, name_ranks
from ncclprobe.model.report import Cause, CodeLocation, Confidence, Moment, Report, Verdict
from ncclprobe.report.renderer import Renderer
from ncclprobe.report.wait_lines import WaitLine, fold_waits

_DEFAULT_WIDTH = 80
_MAX_CLASSES = 6
_MAX_CLASSES_BESIDE_WAITS = 3
_MAX_WAITS = 5
_MAX_HOSTS = 4
_MAX_GAPS = 5
_MAX_MOMENTS = 6
_MAX_GPUS = 3
_MAX_CITATIONS = 3
_MAX_FOLDED = 60
_STYLES = {Confidence.CERTAIN: "bold red", Confidence.PROBABLE: "bold yellow", Confidence.POSSIBLE: "bold cyan"}
# Rich fills up lines; blanks at their ends, which may stand between its own escape sequences, are of no use.
_LINE_END = re.compile(r"(?: |\x1b\[[0-9;]*m)+$", re.MULTILINE)
# Escape sequences in evidence must not reach the terminal: C0 and C1 controls, and direction marks, become a dot.
_CONTROLS = dict.fromkeys([*range(32), *range(127, 160), *range(0x202A, 0x202F), *range(0x2066, 0x206A)], "·")


def write(report: Report, stream: TextIO, width: int | None, has_color: bool) -> None:
    """Prints the report; `width` None follows the terminal, 80 columns where there is none."""
    if width is None and not stream.isatty():
        width = _DEFAULT_WIDTH
    console = Console(file=stream, width=width, no_color=not has_color, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(render(report))
    stream.write(_LINE_END.sub(lambda end: end[0].replace(" ", ""), capture.get()))


def render(report: Report) -> RenderableType:
    """All sections, top down."""
    return Group(*_sections(report))


def _sections(report: Report) -> Iterator[RenderableType]:
    verdict = report.verdict
    yield Rule(Text(f"{verdict.cause}  ({verdict.confidence})", style=_style(verdict)), style=_style(verdict))
    yield _text(verdict.summary, "bold")
    yield _facts(report)
    yield from _where(verdict)
    yield from _evidence(verdict)
    yield from _next(verdict)
    waits = fold_waits(report)
    # A single line would only repeat what stands at the top.
    yield from _waits(waits) if len(waits) > 1 else ()
    yield from _timeline(report)
    yield from _gpus(report)
    yield from _ranks(report, _MAX_CLASSES_BESIDE_WAITS if len(waits) > 1 else _MAX_CLASSES)
    yield from _gaps(report)


def _style(verdict: Verdict) -> str:
    if verdict.cause in (Cause.PROGRESSING, Cause.INCONCLUSIVE):
        return "bold cyan"
    return _STYLES[verdict.confidence]


def _text(value: str, style: str = "") -> Text:
    return Text(value.translate(_CONTROLS), style=style, overflow="fold")


def _facts(report: Report) -> RenderableType:
    verdict = report.verdict
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    if verdict.guilty_ranks:
        table.add_row("guilty", _text(_guilty(verdict), "bold"))
    if verdict.victims:
        table.add_row("victims", _text(_shortened(verdict.victims)))
    if verdict.blocked_on:
        table.add_row("blocked on", _text(_blocked(verdict)))
    coverage = report.coverage
    size = coverage.world_size if coverage.world_size is not None else "?"
    seen = f"{coverage.ranks_found} of {size} ranks"
    if coverage.hosts_asked:
        seen += f", {coverage.hosts_answered} of {coverage.hosts_asked} hosts"
    kinds = ", ".join(f"{count} {kind}" for kind, count in coverage.kinds.items())
    table.add_row("seen", _text(f"{seen}; {kinds}" if kinds else seen))
    return Padding(table, (1, 0, 0, 2), expand=False)


def _guilty(verdict: Verdict) -> str:
    hosts, shared = verdict.guilty_hosts, verdict.guilty_are
    on = ", ".join(hosts) if len(hosts) <= _MAX_HOSTS else f"{', '.join(hosts[:_MAX_HOSTS])}, ... ({len(hosts)} hosts)"
    is_said = shared is None or shared in verdict.summary
    return name_ranks(verdict.guilty_ranks) + (f" on {on}" if hosts else "") + ("" if is_said else f" ({shared})")


def _shortened(folded: str) -> str:
    return folded if len(folded) <= _MAX_FOLDED else folded[:_MAX_FOLDED].rpartition(",")[0] + ",..."


def _blocked(verdict: Verdict) -> str:
    on = verdict.blocked_on
    assert on is not None
    text = f"{on.op}" + (f", call {on.seq} of group {on.group}" if on.seq is not None else "")
    if on.age_s is not None:
        text += f", for {_duration(on.age_s)}"
        if on.timeout_s is not None and on.timeout_s > on.age_s:
            text += f"; its timeout ends it in {_duration(on.timeout_s - on.age_s)}"
    return text


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _heading(name: str) -> RenderableType:
    return Padding(Text(name, style="bold underline"), (1, 0, 0, 0), expand=False)


def _where(verdict: Verdict) -> Iterator[RenderableType]:
    if not verdict.where:
        return
    yield _heading("Where")
    for place in verdict.where[:2]:
        yield Padding(_place(place, is_guilty=place.rank in verdict.guilty_ranks), (0, 0, 0, 2), expand=False)


def _place(place: CodeLocation, *, is_guilty: bool) -> RenderableType:
    lines = [_text(f"rank {place.rank}  {place.file}:{place.line} in {place.function}", "bold" if is_guilty else "")]
    if place.source_line:
        lines.append(_text(f"    {place.source_line}", "red" if is_guilty else "dim"))
    if place.condition:
        lines.append(_text(f"    only reached under: {place.condition}", "yellow"))
    return Group(*lines)


def _evidence(verdict: Verdict) -> Iterator[RenderableType]:
    if verdict.evidence or verdict.against:
        yield _heading("Evidence")
    for mark, citations in (("+", verdict.evidence[:_MAX_CITATIONS]), ("-", verdict.against[:1])):
        for citation in citations:
            yield Padding(_text(f"{mark} {citation.says}: {citation.quote}"), (0, 0, 0, 2), expand=False)
            yield Padding(_text(f"{citation.artifact}, {citation.place}", "dim"), (0, 0, 0, 4), expand=False)


def _next(verdict: Verdict) -> Iterator[RenderableType]:
    if verdict.next_steps or verdict.fix:
        yield _heading("Next")
    for step in verdict.next_steps[:2]:
        yield Padding(_text(step), (0, 0, 0, 2), expand=False)
    if verdict.fix:
        yield Padding(_text(f"fix: {verdict.fix}"), (0, 0, 0, 2), expand=False)


def _waits(lines: list[WaitLine]) -> Iterator[RenderableType]:
    yield _heading("Who waits for whom")
    for line in lines[:_MAX_WAITS]:
        yield Padding(_text(str(line)), (0, 0, 0, 2), expand=False)
    if len(lines) > _MAX_WAITS:
        more = f"and {len(lines) - _MAX_WAITS} more kinds of waits: see groups in --format json"
        yield Padding(_text(more, "dim"), (0, 0, 0, 2), expand=False)


def _ranks(report: Report, at_most: int) -> Iterator[RenderableType]:
    """Ranks that do the same are one line, whatever their number."""
    classes: dict[str, list[int]] = defaultdict(list)
    for rank in report.ranks:
        classes[rank.doing].append(rank.rank)
    if not classes:
        return
    yield _heading("Ranks")
    ordered = sorted(classes.items(), key=lambda item: (len(item[1]), item[1]))
    for doing, ranks in ordered[:at_most]:
        yield Padding(_text(f"{fold_short(ranks)}: {doing}"), (0, 0, 0, 2), expand=False)
    if len(ordered) > at_most:
        rest = sum(len(ranks) for _, ranks in ordered[at_most:])
        yield Padding(_text(f"and {rest} more ranks in {len(ordered) - at_most} other places", "dim"), (0, 0, 0, 2))


def _timeline(report: Report) -> Iterator[RenderableType]:
    """Only where more than one thing happened: a single moment explains nothing."""
    if len(report.timeline) < 2:
        return
    yield _heading("Timeline")
    for moment in report.timeline[:_MAX_MOMENTS]:
        yield Padding(_text(f"{moment.when}  {_who(moment)}{moment.says}"), (0, 0, 0, 2), expand=False)
    if len(report.timeline) > _MAX_MOMENTS:
        more = len(report.timeline) - _MAX_MOMENTS
        yield Padding(_text(f"and {more} more moments: see --format json", "dim"), (0, 0, 0, 2), expand=False)


def _who(moment: Moment) -> str:
    ranks = f"rank{'' if moment.ranks.isdigit() else 's'} {_shortened(moment.ranks)}" if moment.ranks else ""
    words = " on ".join(filter(None, (ranks, moment.host)))
    return f"{words}: " if words else ""


def _gpus(report: Report) -> Iterator[RenderableType]:
    """How many spin, in one line, and each that does something else."""
    spinning = [gpu for gpu in report.gpus if gpu.state == "spinning"]
    others = [gpu for gpu in report.gpus if gpu.state in ("idle", "busy", "lost")]
    if not spinning and not any(gpu.state == "lost" for gpu in others):
        return
    yield _heading("GPUs")
    if spinning:
        count = f"{len(spinning)} GPU{'s spin' if len(spinning) > 1 else ' spins'}"
        text = f"{count} in a collective, which shows as use but is waiting: {spinning[0].says}"
        yield Padding(_text(text), (0, 0, 0, 2), expand=False)
    for gpu in others[:_MAX_GPUS]:
        who = f"rank {gpu.rank}" if gpu.rank is not None else gpu.device
        where = f" on {gpu.host}" if gpu.host else ""
        yield Padding(_text(f"{who}{where}: {gpu.state}: {gpu.says}"), (0, 0, 0, 2), expand=False)


def _gaps(report: Report) -> Iterator[RenderableType]:
    if not report.gaps:
        return
    yield _heading("Not known")
    for gap in report.gaps[:_MAX_GAPS]:
        yield Padding(_text(f"{gap.who}: {gap.what}: {gap.why}"), (0, 0, 0, 2), expand=False)
        yield Padding(_text(f"-> {gap.action}", "dim"), (0, 0, 0, 4), expand=False)
    if len(report.gaps) > _MAX_GAPS:
        yield Padding(
            _text(f"and {len(report.gaps) - _MAX_GAPS} more: see --format json", "dim"), (0, 0, 0, 2), expand=False
        )


RENDERER = Renderer(name="console", write=write)
