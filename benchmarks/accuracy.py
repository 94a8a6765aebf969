"""How often the verdict is right, on simulated jobs with a planted cause.

In: nothing. Out: the table of `docs/reference/accuracy.md`, printed, or written with `--write`.

Each scenario of `ncclprobe simulate` is run for the kinds of job it fits, several sizes and seeds, and ways to lose
evidence. With all evidence the guilty set must be exact and the cause one that fits; with less, nobody innocent may be
named with more than `possible`.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ncclprobe import workflow
from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.report import Confidence, Report
from ncclprobe.simulate.request import Request
from ncclprobe.simulate.scenario import all_scenarios
from ncclprobe.simulate.writing import write

SIZES = (4, 8, 16, 32, 64)
WAYS: dict[str, dict[str, object]] = {
    "all dumps": {},
    "no frames": {"has_frames": False},
    "wrapped rings": {"has_wrapped": True},
    "only active calls": {"is_active_only": True},
    "2 s of skew": {"skew_s": 2.0},
    "two dumps lost": {"drop": "2"},
    "the guilty's dumps lost": {"drop": "guilty"},
}
FULL = ("all dumps", "no frames")
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "accuracy.md"


@dataclass(slots=True)
class Row:
    """Counts for one scenario. `wrong` are commands that reproduce what went wrong."""

    jobs: int = 0
    right: int = 0
    cautious: int = 0
    wrong: list[str] = field(default_factory=list)


def requests(seeds: int) -> Iterator[tuple[str, str, Request]]:
    """Scenario, way, and what to simulate."""
    for scenario in all_scenarios():
        for seed in range(seeds):
            job = scenario.jobs[seed % len(scenario.jobs)]
            ranks = SIZES[seed % len(SIZES)]
            for way, options in WAYS.items():
                yield scenario.name, way, Request(name=scenario.name, ranks=ranks, seed=seed, job=job, **options)


def judge(report: Report, truth: dict, way: str) -> str:  # type: ignore[type-arg]
    """`right`, `cautious` (nobody innocent named, or as a possibility only), or what is wrong."""
    verdict = report.verdict
    guilty = set(verdict.guilty_ranks)
    accepted = {truth["cause"], *truth["also_accept"]}
    sets = [set(truth["guilty_ranks"]), *map(set, truth.get("also_accept_guilty", []))]
    is_open = str(verdict.cause) == "inconclusive" and "inconclusive" in accepted and not guilty
    if is_open or (guilty in sets and str(verdict.cause) in accepted):
        return "right"
    innocents = guilty & set(truth["never_blame"])
    if innocents and verdict.confidence is not Confidence.POSSIBLE:
        return f"blames {sorted(innocents)[:6]} as {verdict.cause} ({verdict.confidence})"
    # One look at dumps without a time cannot tell a healthy job from one whose network stands still.
    suspects = {rank for finding in report.findings[:1] for rank in finding.suspects}
    if not guilty and suspects == set(truth["guilty_ranks"]) and truth["cause"] == "stuck-in-cuda":
        return "cautious"
    is_healthy_guess = truth["cause"] == "progressing" and not guilty and verdict.confidence is Confidence.POSSIBLE
    if way in FULL and not is_healthy_guess:
        return f"says {verdict.cause} {sorted(guilty)[:6]}, planted {truth['cause']} {truth['guilty_ranks']}"
    return "cautious"


def run(seeds: int, only: str | None) -> dict[tuple[str, str], Row]:
    """All of it, by scenario and way."""
    rows: dict[tuple[str, str], Row] = defaultdict(Row)
    for name, way, request in requests(seeds):
        if only and only not in name:
            continue
        folder = Path(tempfile.mkdtemp(prefix="ncclprobe-accuracy-"))
        try:
            write(request, folder / "job")
        except NcclprobeError:
            shutil.rmtree(folder)
            continue  # the scenario does not fit this size
        truth = json.loads((folder / "job" / "truth.json").read_text())
        outcome = judge(workflow.analyze(folder / "job" / "dumps"), truth, way)
        shutil.rmtree(folder)
        row = rows[name, way]
        row.jobs += 1
        row.right += outcome == "right"
        row.cautious += outcome == "cautious"
        if outcome not in ("right", "cautious"):
            row.wrong.append(
                f"{name} --ranks {request.ranks} --seed {request.seed} --job {request.job} [{way}]: {outcome}"
            )
    return rows


def table(rows: dict[tuple[str, str], Row]) -> str:
    """A Markdown table: a row per scenario; in each cell right / cautious / wrong."""
    names = sorted({name for name, _ in rows})
    lines = ["| planted | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for name in names:
        cells = (rows.get((name, way), Row()) for way in WAYS)
        lines.append(f"| {name} | " + " | ".join(f"{c.right} / {c.cautious} / {len(c.wrong)}" for c in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Runs all and prints, or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only")
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows = run(options.seeds, options.only)
    total = sum(row.jobs for row in rows.values())
    wrong = [line for row in rows.values() for line in row.wrong]
    print(table(rows))
    print(f"\n{total} jobs, {len(wrong)} wrong")
    print("\n".join(wrong), file=sys.stderr)
    if options.write:
        head = PAGE.read_text().partition("<!-- table -->")[0]
        PAGE.write_text(f"{head}<!-- table -->\n\n{total} jobs, {len(wrong)} wrong.\n\n{table(rows)}\n")


if __name__ == "__main__":
    main()
