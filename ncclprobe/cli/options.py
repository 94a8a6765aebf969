"""Options that several commands share: how a report is shown.

In: nothing. Out: annotated types for Typer.
"""

from pathlib import Path
from typing import Annotated

import typer

Format = Annotated[str, typer.Option("--format", "-f", help="console or json.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the report to a file.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours (NO_COLOR does the same).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="More on standard error; -vv adds tracebacks.")
]
