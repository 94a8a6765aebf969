"""`ncclprobe simulate`: the evidence of a synthetic job with a planted cause, and its truth.

In: a cause or a scenario, and a number of ranks. Out: a directory of flight-recorder dumps with `truth.json`.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ncclprobe.cli import options
from ncclprobe.model.errors import UsageError
from ncclprobe.model.folding import name_ranks


def simulate(
    cause: Annotated[str | None, typer.Argument(help="A cause, or one of its scenarios.", show_default=False)] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List causes and scenarios.")] = False,
    ranks: Annotated[int, typer.Option(help="How many ranks the job has.")] = 16,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="A new directory.", show_default=False)] = None,
    job: Annotated[str | None, typer.Option(help="ddp, fsdp, megatron or moe; by chance when left out.")] = None,
    seed: Annotated[int, typer.Option(help="Decides all that is left to chance.", min=0)] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Steps before the fault that the recorders hold.", min=0, show_default=False)
    ] = None,
    version: Annotated[str, typer.Option(help="Of the dumps: 2.10, 2.9, 2.4, 2.1, 1.4 or list.")] = "2.10",
    format: Annotated[str, typer.Option("--format", "-f", help="pickle or json.")] = "pickle",  # noqa: A002
    frames: Annotated[bool, typer.Option(help="Call stacks in the dumps; JSON never has them.")] = True,
    drop_dumps: Annotated[
        str, typer.Option(metavar="N|LIST|guilty", help="Leave out so many dumps, these (3, or 0,5-7), or the guilty.")
    ] = "",
    wrap: Annotated[bool, typer.Option("--wrap", help="Rings too small to reach back to the fault.")] = False,
    empty: Annotated[
        bool, typer.Option("--empty", help="Only calls that have not ended: who waits for nothing has an empty dump.")
    ] = False,
    skew: Annotated[float, typer.Option(help="Seconds between the first and the last dump of a running job.")] = 0.0,
    verbose: options.Verbose = 0,
) -> None:
    """Write the flight-recorder dumps of a synthetic job that hangs, or does not, and what is true of it.

    The dumps are in DIR/dumps, the answer in DIR/truth.json. The same options give the same bytes. Needs no torch.
    """
    if list_all:
        _list()
        return
    if cause is None:
        raise UsageError("no cause is named", "see ncclprobe simulate --list")
    if out is None:
        raise UsageError("no directory is named", "name a new one with -o")
    if format not in ("pickle", "json"):
        raise UsageError(f"dumps have no format {format!r}", "choose pickle or json")
    from ncclprobe.simulate.request import Request
    from ncclprobe.simulate.writing import write

    request = Request(
        name=cause,
        ranks=ranks,
        seed=seed,
        job=job,
        steps=steps,
        version=version,
        is_json=format == "json",
        has_frames=frames,
        has_wrapped=wrap,
        is_active_only=empty,
        skew_s=skew,
        drop=drop_dumps,
    )
    truth = write(request, out)
    print(f"{truth.scenario}: {name_ranks(truth.guilty_ranks)}; {truth.note}; in {out}", file=sys.stderr)


def _list() -> None:
    from ncclprobe.simulate.scenario import all_scenarios

    for scenario in all_scenarios():
        print(f"{scenario.name}\n  {scenario.summary}\n  jobs: {', '.join(scenario.jobs)}")
