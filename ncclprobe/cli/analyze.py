"""`ncclprobe analyze`: the verdict on evidence collected earlier.

In: a bundle. Out: the verdict, the same as when it was collected.
"""

from pathlib import Path
from typing import Annotated

import typer

from ncclprobe.cli import options, output
from ncclprobe.model.errors import UsageError


def analyze(
    path: Annotated[Path, typer.Argument(help="A bundle: a directory or an archive.")],
    format: options.Format = "console",  # noqa: A002 - the name users type
    out: options.Out = None,
    no_color: options.NoColor = False,
    verbose: options.Verbose = 0,
) -> None:
    """Name the guilty rank from a bundle."""
    renderer = output.renderer_for(format)
    if not path.exists():
        raise UsageError(f"{path} does not exist", "name a bundle made by ncclprobe collect")
    from ncclprobe import workflow

    raise typer.Exit(output.show(workflow.analyze(path), renderer, out, no_color))
