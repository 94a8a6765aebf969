"""A checkup for a person at a terminal: a table for each host, or for hosts that are alike, then the settings.

In: a `Checkup`. Out: text through Rich. What comes from hosts enters as `Text`, never as markup.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from ncclprobe.model.checkup import Advice, Check, CheckState, Checkup, Level
from ncclprobe.model.folding import name_ranks

_DEFAULT_WIDTH = 100
_STYLES = {
    CheckState.OK: "green",
    CheckState.LIMITED: "yellow",
    CheckState.BLOCKED: "bold red",
    CheckState.ABSENT: "dim",
}
_MAX_NAMED = 8
_ORDER = (CheckState.BLOCKED, CheckState.LIMITED, CheckState.OK, CheckState.ABSENT)


def write(checkup: Checkup, stream: TextIO, width: int | None, has_color: bool) -> None:
    """Prints it; `width` None follows the terminal, 100 columns where there is none."""
    if width is None and not stream.isatty():
        width = _DEFAULT_WIDTH
    console = Console(file=stream, width=width, no_color=not has_color, highlight=False, emoji=False, markup=False)
    with console.capture() as capture:
        console.print(Group(*_sections(checkup)))
    stream.write("".join(f"{line.rstrip()}\n" for line in capture.get().splitlines()))


def _sections(checkup: Checkup) -> Iterator[RenderableType]:
    yield Text(_headline(checkup), style="bold green" if checkup.is_clear else "bold red")
    for hosts, checks in _alike(checkup):
        named = ", ".join(hosts[:_MAX_NAMED]) + (f", ... ({len(hosts)} hosts)" if len(hosts) > _MAX_NAMED else "")
        yield Rule(Text(named), align="left")
        yield _table(checks)
    yield Rule(Text(f"settings of {checkup.settings_of}"), align="left")
    if not checkup.advice:
        yield Text("nothing is wrong with them", style="green")
    for advice in checkup.advice:
        yield from _advice(advice)


def _headline(checkup: Checkup) -> str:
    if checkup.is_clear:
        return "all evidence there is can be collected"
    blocked = sum(check.state is CheckState.BLOCKED for host in checkup.hosts for check in host.checks)
    problems = sum(advice.level is Level.PROBLEM for advice in checkup.advice)
    parts = [f"{blocked} things stand in the way"] if blocked > 1 else ["1 thing stands in the way"] if blocked else []
    parts += [f"{problems} problem{'s' if problems > 1 else ''} in the settings"] if problems else []
    return " and ".join(parts)


def _alike(checkup: Checkup) -> list[tuple[list[str], tuple[Check, ...]]]:
    """Hosts with the same checks together; ranks and figures make most hosts differ a little, states rarely."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = defaultdict(list)
    checks: dict[tuple[tuple[str, str], ...], tuple[Check, ...]] = {}
    for host in checkup.hosts:
        key = tuple(
            sorted((check.name, f"{check.state}{'' if _is_fine(check) else check.what}") for check in host.checks)
        )
        groups[key].append(host.host)
        checks.setdefault(key, host.checks)
    return [(hosts, checks[key]) for key, hosts in groups.items()]


def _is_fine(check: Check) -> bool:
    return check.state in (CheckState.OK, CheckState.ABSENT)


def _table(checks: tuple[Check, ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for check in sorted(checks, key=lambda one: (_ORDER.index(one.state), one.name)):
        whose = f" ({name_ranks(check.ranks)})" if check.ranks else ""
        what = Text(f"{check.what}{whose}")
        if check.action and check.state is not CheckState.OK:
            what.append(f"\n-> {check.action}", style="cyan")
        table.add_row(Text(check.name), Text(str(check.state), style=_STYLES[check.state]), what)
    return table


def _advice(advice: Advice) -> Iterator[RenderableType]:
    head = Text(f"{advice.level}: ", style="bold red" if advice.level is Level.PROBLEM else "yellow")
    whose = f" ({name_ranks(advice.ranks)})" if advice.ranks else ""
    head.append(f"{advice.text}{whose}", style="default")
    yield head
    more = Text(f"-> {advice.action}", style="cyan")
    more.append(f"   [{advice.rule}; {advice.applies}]", style="dim")
    yield Padding(more, (0, 0, 0, 2))
