"""Entry point: the commands, and what an error looks like.

In: `sys.argv`. Out: an exit status: 0 nothing hung, 1 a verdict, 2 wrong usage, 3 inconclusive, 4 failed.
"""

import os
import sys
import traceback

import typer

from ncclprobe import __version__
from ncclprobe.cli import analyze, collect, diagnose, doctor, repro, run, simulate
from ncclprobe.model.errors import BundleError, NcclprobeError, UsageError

app = typer.Typer(
    name="ncclprobe",
    help="Which rank hung the job, where in its code, and why.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
app.command("diagnose")(diagnose.diagnose)
app.command("collect")(collect.collect)
app.command("analyze")(analyze.analyze)
app.command("doctor")(doctor.doctor)
app.command("run", context_settings={"allow_interspersed_args": False})(run.run)
app.command("repro")(repro.repro)
app.command("simulate")(simulate.simulate)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"ncclprobe {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Which rank hung the job, where in its code, and why."""


def main() -> None:
    """Runs a command. Every error is one line of what is wrong and one of what to do; `-vv` adds the traceback."""
    try:
        sys.exit(app(standalone_mode=False))
    except NcclprobeError as error:
        _explain(str(error), error.advice, _status(error))
    except KeyboardInterrupt:
        _explain("interrupted", "what was collected with -o so far can be analysed", 130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(4)
    except Exception as error:  # noqa: BLE001 - a person on call gets a line and a way to report, not a traceback
        # Typer's own usage errors: their class is Click's or Typer's by version, but all can format themselves.
        if hasattr(error, "format_message"):
            _explain(error.format_message(), "see ncclprobe --help, or --help of the command", 2)
        what = f"internal error: {type(error).__name__}: {error}"
        _explain(what, "run it again with -vv and report the traceback", 4)


def _status(error: NcclprobeError) -> int:
    if isinstance(error, UsageError):
        return 2
    return 3 if isinstance(error, BundleError) else 4


def _explain(what: str, advice: str, status: int) -> None:
    if "-vv" in sys.argv:
        traceback.print_exc()
    print(f"ncclprobe: {' '.join(what.split())}", file=sys.stderr)
    print(f"  -> {' '.join(advice.split())}", file=sys.stderr)
    sys.exit(status)
