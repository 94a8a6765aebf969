"""How often the verdict is right on the reproducers: real jobs on this machine, each looked at in three ways.

In: nothing, or files of what `ncclprobe repro --all --diagnose --ways all --format json` printed, of which later ones
replace the same jobs of earlier ones. Out: the table of `docs/reference/accuracy.md`, printed; written with `--write`.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ncclprobe.model.folding import fold
from ncclprobe.model.report import Cause
from ncclprobe.rehearsal import Asked, Result, Way, rehearse
from ncclprobe.repro.catalog import all_repros

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "accuracy.md"
BEGIN, END = "<!-- reproducers -->", "<!-- end of reproducers -->"
AT_STEP = 20
HEADS = {Way.LIVE: "with live dumps", Way.STACKS: "stacks and logs only", Way.BUNDLE: "offline, from the bundle"}

Row = Mapping[str, Any]
Rows = dict[tuple[str, str], Row]
"""By name and way the fields of a `Result`."""


def run() -> Iterable[Row]:
    """All of them: a quarter of an hour."""

    def say(result: Result) -> None:
        print(f"{result.name} ({result.way}): {outcome(asdict(result))}", file=sys.stderr, flush=True)

    return [asdict(result) for result in rehearse(all_repros(), tuple(Way), Asked(at_step=AT_STEP), say)]


def outcome(row: Row) -> str:
    """`right`; `cautious`: no verdict, from stacks and logs only; `wrong`; or `not run`."""
    if row["is_right"] is None:
        return "not run"
    if row["cause"] == Cause.INCONCLUSIVE and row["way"] == Way.STACKS:
        return "cautious"
    return "right" if row["is_right"] else "wrong"


def cell(row: Row | None) -> str:
    """What came of one job, looked at in one way."""
    if row is None:
        return ""
    if not row["cause"]:
        return f"{outcome(row)}: {row['reason']}"
    ranks = fold(tuple(row["guilty_ranks"]))
    said = f"`{row['cause']}`{f' by {ranks}' if ranks else ''}, {row['confidence']}, {row['seconds']:.1f} s"
    return f"{outcome(row)}: {said}" + (f"; {row['reason']}" if outcome(row) == "wrong" else "")


def table(rows: Rows) -> str:
    """A Markdown table: a row per reproducer."""
    planted = {name: row["planted"] for (name, _), row in rows.items()}
    lines = [f"| reproducer | planted | {' | '.join(HEADS.values())} |", "|---" * (len(HEADS) + 2) + "|"]
    for name in sorted(planted):
        cells = (cell(rows.get((name, way.value))) for way in HEADS)
        lines.append(f"| `{name}` | `{planted[name]}` | {' | '.join(cells)} |")
    return "\n".join(lines)


def summary(rows: Rows) -> str:
    """How often each outcome was, in one line."""
    counts = Counter(map(outcome, rows.values()))
    said = ", ".join(f"{counts[word]} {word}" for word in ("right", "cautious", "wrong", "not run"))
    return f"{len({name for name, _ in rows})} reproducers, each in {len(HEADS)} ways: {said}."


def written(page: str, text: str) -> str:
    """The page with `text` between its two markers."""
    head, _, rest = page.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{text}\n\n{END}{rest.partition(END)[2]}"


def gathered(found: Iterable[Row]) -> Rows:
    """By name and way; the last one counts."""
    return {(row["name"], str(row["way"])): row for row in found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs or reads, prints, and with `--write` writes the page; 1 where something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="*", type=Path, help="JSON of `ncclprobe repro --all --diagnose`")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args(arguments)
    rows = gathered(row for path in options.results for row in json.loads(path.read_text()))
    rows = rows or gathered(run())
    text = f"{summary(rows)}\n\n{table(rows)}"
    print(text)
    if options.write:
        PAGE.write_text(written(PAGE.read_text(), text))
    return 1 if "wrong" in map(outcome, rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
