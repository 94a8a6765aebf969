"""`ncclprobe doctor`: what could be collected now, what stands in the way, what to set before the next run.

In: where the job runs. Out: a table for each host, advice on the job's settings; status 0 when nothing is in the way.
"""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncclprobe.cli import options, output
from ncclprobe.cli.collection import make_selection, make_target
from ncclprobe.model.errors import UsageError

if TYPE_CHECKING:
    from typing import TextIO

    from ncclprobe.model.checkup import Checkup

_DEADLINE_S, _INTERVAL_S = 30.0, 0.1


def doctor(
    hosts: options.Hosts = None,
    local: options.Local = False,
    job: options.Job = None,
    pid: options.Pid = None,
    user: options.User = None,
    deadline: Annotated[float, typer.Option(help="Seconds for the whole checkup.", min=2.0)] = _DEADLINE_S,
    identity: options.Identity = None,
    accept_new_host_keys: options.AcceptNewHostKeys = False,
    format: options.Format = "console",  # noqa: A002 - the name users type
    out: options.Out = None,
    no_color: options.NoColor = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Say for each host what could be collected now and what stands in the way, and check the job's settings.

    Disturbs nothing. Where no job runs, the settings of this shell are checked. The exit status is 1 when something
    stands in the way.
    """
    if format not in ("console", "json"):
        raise UsageError(f"there is no format {format!r}", "choose one of: console, json")
    target = make_target(hosts, local, identity, accept_new_host_keys)
    selection = make_selection(target, job, pid, user)
    from ncclprobe.examine import examine
    from ncclprobe.probe.source import Options
    from ncclprobe.workflow import Request

    request = Request(options=Options(interval_s=_INTERVAL_S), selection=selection, deadline_s=deadline)
    progress = output.Progress(target.hosts, quiet, verbose)
    checkup = examine(target, request, progress.on_answer)
    _show(checkup, format, out, no_color)
    raise typer.Exit(0 if checkup.is_clear else 1)


def _show(checkup: "Checkup", name: str, out: Path | None, no_color: bool) -> None:
    has_color = not no_color and not os.environ.get("NO_COLOR") and sys.stdout.isatty()
    if out is None:
        _write(checkup, name, sys.stdout, has_color)
        sys.stdout.flush()
        return
    try:
        with out.open("w", encoding="utf-8") as file:
            _write(checkup, name, file, False)
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}", "choose another place with --out") from None


def _write(checkup: "Checkup", name: str, stream: "TextIO", has_color: bool) -> None:
    from ncclprobe.doctor import console, json

    if name == "json":
        json.write(checkup, stream)
    else:
        console.write(checkup, stream, None, has_color)
