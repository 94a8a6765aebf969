"""`ncclprobe run`: start a job so that its next hang can be diagnosed.

In: a command. Out: that command itself, in this very process: its pid, signals and exit status are its own.
"""

import os
import shlex
import signal
import stat
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from ncclprobe.cli import options
from ncclprobe.model.errors import UsageError

if TYPE_CHECKING:
    from ncclprobe.prepare.environment import Plan

_NOT_FOUND, _NOT_RUNNABLE = 127, 126  # what shells, env and nohup answer


def run(
    command: Annotated[
        list[str] | None, typer.Argument(help="The command and its arguments, after --.", show_default=False)
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option("--dir", help="Where this job's dumps and pipes go. By default a new directory in /tmp."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Start nothing; print what would be set, for eval in a shell script.")
    ] = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Start a command, such as torchrun, with the environment that makes its next hang diagnosable.

    Changes nothing that is set already, and says on standard error what it sets.
    """
    from ncclprobe.prepare.environment import make_plan

    if not command and not dry_run:
        raise UsageError("no command is given", "name it after --, as in: ncclprobe run -- torchrun train.py")
    place = os.path.abspath(directory if directory is not None else _default_directory())
    plan = make_plan(os.environ, place)
    if not quiet:
        _say(plan)
    if dry_run:
        print("\n".join(_shell_lines(plan)))
        return
    if plan.needs_directory:
        _make_directory(place, is_ours=directory is None)
    _become(command or [], {**os.environ, **plan.variables})


def _default_directory() -> str:
    from ncclprobe.prepare.environment import job_name

    name = job_name(os.environ, time.strftime("%Y%m%d-%H%M%S", time.gmtime()), os.getpid())
    return f"/tmp/nccl-dumps-{os.getuid()}-{name}"  # noqa: S108 - made 0700, and refused when it is another user's


def _say(plan: "Plan") -> None:
    for setting in plan.added:
        for name in setting.names:
            print(f"ncclprobe: set {name}={setting.value}: {setting.why}", file=sys.stderr)
    for kept in plan.kept:
        print(f"ncclprobe: already set, left alone: {kept.name}={kept.value}", file=sys.stderr)
        for name in kept.setting.names:
            if name not in [other.name for other in plan.kept]:
                print(f"ncclprobe: not set, because {kept.name} is: {name}", file=sys.stderr)


def _shell_lines(plan: "Plan") -> list[str]:
    """Without the directory torch would end every rank at the start: it cannot make its pipes."""
    made = [f"mkdir -p -m 700 {shlex.quote(plan.directory)}"] if plan.needs_directory else []
    return [*made, *(f"export {name}={shlex.quote(value)}" for name, value in plan.variables.items())]


def _make_directory(path: str, *, is_ours: bool) -> None:
    """Ranks of a job share it, so it may be there. In /tmp anybody could have put it there first."""
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.lstat(path)
    except OSError as error:
        raise UsageError(f"cannot make {path}: {error.strerror}", "choose another place with --dir") from None
    if is_ours and (status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode)):
        raise UsageError(f"{path} belongs to somebody else", "choose another place with --dir")
    if not os.access(path, os.W_OK | os.X_OK):
        raise UsageError(f"{path} may not be written to", "choose another place with --dir")


def _become(command: list[str], environ: dict[str, str]) -> NoReturn:
    # Python ignores these two, and what is ignored stays so in the command.
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execvpe(command[0], command, environ)  # noqa: S606 - the user's own command
    except OSError as error:
        print(f"ncclprobe: cannot run {command[0]}: {error.strerror}", file=sys.stderr)
        print("  -> check the name and the PATH; the command goes after --", file=sys.stderr)
        raise typer.Exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_RUNNABLE) from None
