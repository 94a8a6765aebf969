"""`ncclprobe analyze`: the verdict on evidence collected earlier.

In: a bundle, or loose files. Out: the verdict; on a bundle the same as when it was collected.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from ncclprobe.cli import options, output


def analyze(
    paths: Annotated[list[Path], typer.Argument(help="A bundle, or files and directories of evidence, in any mix.")],
    format: options.Format = "console",  # noqa: A002 - the name users type
    out: options.Out = None,
    no_color: options.NoColor = False,
    verbose: options.Verbose = 0,
) -> None:
    """Name the guilty rank from evidence collected earlier: a bundle, flight-recorder dumps, stacks, a kernel log.

    `-` reads one file from standard input.
    """
    renderer = output.renderer_for(format)
    from ncclprobe import workflow

    with _standard_input(paths) as given:
        report = workflow.analyze(*given)
    raise typer.Exit(output.show(report, renderer, out, no_color))


@contextmanager
def _standard_input(paths: list[Path]) -> Iterator[list[Path]]:
    """`-` becomes a file of its own for as long as it is read."""
    if Path("-") not in paths:
        yield paths
        return
    with tempfile.TemporaryDirectory(prefix="ncclprobe-") as folder:
        copy = Path(folder) / "standard-input"
        copy.write_bytes(sys.stdin.buffer.read())
        yield [copy if path == Path("-") else path for path in paths]
