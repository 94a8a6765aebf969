"""`ncclprobe diagnose`: collect and analyse in one go.

In: where the job runs. Out: the verdict.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncclprobe.cli import options, output
from ncclprobe.cli.collection import collects

if TYPE_CHECKING:
    from ncclprobe.workflow import Request, Target


@collects
def diagnose(
    target: "Target",
    request: "Request",
    bundle: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the evidence here (a new directory, or a .tar.gz).")
    ] = None,
    format: options.Format = "console",  # noqa: A002 - the name users type
    out: options.Out = None,
    no_color: options.NoColor = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Name the rank that hung the job, where in its code, and why.

    Asks this machine, or every host of --hosts, for evidence of the one job that runs there.
    """
    renderer = output.renderer_for(format)
    from ncclprobe import workflow

    progress = output.Progress(target.hosts, quiet, verbose)
    report = workflow.diagnose(target, request, bundle, progress.on_answer)
    raise typer.Exit(output.show(report, renderer, out, no_color))
