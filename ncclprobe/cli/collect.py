"""`ncclprobe collect`: evidence into a bundle, to be analysed later or elsewhere.

In: where the job runs, where the bundle goes. Out: the bundle.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncclprobe.cli import options, output
from ncclprobe.cli.collection import collects

if TYPE_CHECKING:
    from ncclprobe.workflow import Request, Target


@collects
def collect(
    target: "Target",
    request: "Request",
    bundle: Annotated[Path, typer.Option("--output", "-o", help="The bundle: a new directory, or a .tar.gz.")],
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Collect evidence from every rank into a bundle. `ncclprobe analyze` reads it anywhere."""
    from ncclprobe import workflow

    progress = output.Progress(target.hosts, quiet, verbose)
    workflow.collect(target, request, bundle, progress.on_answer)
    if not quiet:
        print(f"evidence is in {bundle}; next: ncclprobe analyze {bundle}", file=sys.stderr)
