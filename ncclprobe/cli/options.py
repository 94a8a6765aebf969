"""Options that several commands share: where the job runs, and how a report is shown.

In: nothing. Out: annotated types for Typer.
"""

from pathlib import Path
from typing import Annotated

import typer

Hosts = Annotated[
    str | None,
    typer.Option(help="Hosts to ask over SSH: a file, a set such as node[01-04], or - (standard input)."),
]
Local = Annotated[bool, typer.Option("--local", help="Ask this machine (the default without --hosts).")]
Job = Annotated[
    str | None, typer.Option(help="The job, where several run: its rendezvous id, address:port or Slurm id.")
]
Pid = Annotated[int | None, typer.Option(help="Any process of the job (one host only).", min=1)]
User = Annotated[str | None, typer.Option(help="The user who runs the job.")]
Identity = Annotated[Path | None, typer.Option("--identity", "-i", help="The one private key to log in with.")]
AcceptNewHostKeys = Annotated[
    bool, typer.Option("--accept-new-host-keys", help="Trust hosts that known_hosts does not name yet.")
]
Format = Annotated[str, typer.Option("--format", "-f", help="console or json.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the report to a file.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours (NO_COLOR does the same).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="More on standard error; -vv adds tracebacks.")
]
