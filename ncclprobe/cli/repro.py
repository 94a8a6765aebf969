"""`ncclprobe repro`: a job that hangs on demand.

In: the name of a reproducer. Out: a running, stuck job; with `--diagnose` the verdict on it.
"""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from ncclprobe.cli import options, output
from ncclprobe.model.errors import NcclprobeError, UsageError

if TYPE_CHECKING:
    from ncclprobe.model.report import Report
    from ncclprobe.repro.job import Job
    from ncclprobe.repro.reproducer import Repro

_DEFAULT_STEP = 400
_START_TIMEOUT_S = 120.0


def repro(
    name: Annotated[str | None, typer.Argument(help="Which reproducer.", show_default=False)] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the reproducers.")] = False,
    ranks: Annotated[int | None, typer.Option(help="How many ranks to start.", min=2, max=64)] = None,
    at_step: Annotated[int, typer.Option(help="The step to hang at.", min=1)] = _DEFAULT_STEP,
    backend: Annotated[str, typer.Option(help="auto, gloo or nccl.")] = "auto",
    fixed: Annotated[bool, typer.Option("--fixed", help="Run the repaired program to its end instead.")] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Diagnose the job, stop it, compare with the truth.")
    ] = False,
    live_dump: Annotated[bool, typer.Option(help="With --diagnose: ask the ranks for their flight recorder.")] = True,
    timeout: Annotated[float | None, typer.Option(help="Stop the job after so many seconds.", min=1.0)] = None,
    format: options.Format = "console",  # noqa: A002 - the name users type
    no_color: options.NoColor = False,
    verbose: options.Verbose = 0,
) -> None:
    """Start a training job with a planted hang, on this machine, with real processes.

    It stays until Ctrl-C, --timeout or the end of the diagnosis. With --diagnose the exit status is 0 when the verdict
    is the planted one, else 1. Needs torch, which the extra named repro brings.
    """
    from ncclprobe.repro import catalog

    if list_all:
        _list(catalog.all_repros())
        return
    if name is None:
        raise UsageError("no reproducer is named", "see ncclprobe repro --list")
    if diagnose and fixed:
        raise UsageError("--diagnose and --fixed contradict each other", "the repaired program does not hang")
    if backend not in ("auto", "gloo", "nccl"):
        raise UsageError(f"there is no backend {backend!r}", "choose one of: auto, gloo, nccl")
    renderer = output.renderer_for(format)
    chosen = catalog.find(name)
    from ncclprobe.repro.launch import launch

    count = ranks if ranks is not None else chosen.default_ranks
    with launch(chosen, ranks=count, at_step=at_step, fixed=fixed, backend=backend) as job:
        if fixed:
            raise typer.Exit(_run_to_end(job, timeout))
        _wait_until_stuck(job, chosen, at_step)
        if not diagnose:
            raise typer.Exit(_stay(job, timeout))
        report = _diagnose(job, live_dump=live_dump)
    output.show(report, renderer, None, no_color)
    raise typer.Exit(_compare(chosen, count, report))


def _list(repros: "tuple[Repro, ...]") -> None:
    for known in repros:
        print(f"{known.name}\n  {known.summary}\n  cause: {known.cause}; needs: {known.needs}\n  {known.expects}")


def _run_to_end(job: "Job", timeout: float | None) -> int:
    status = job.wait(timeout)
    if status is None:
        _say(f"it had not ended after {timeout:g} s and was stopped")
        return 1
    _say(f"the repaired program ran to its end, exit status {status}")
    return status


def _wait_until_stuck(job: "Job", chosen: "Repro", at_step: int) -> None:
    from ncclprobe.repro.job import JobState

    _say(f"starting {chosen.name}: it will hang at step {at_step} ...")
    state = job.wait_until_stuck(_START_TIMEOUT_S)
    if state is not JobState.STUCK:
        raise NcclprobeError(
            f"the job did not hang: it is {state}; {job.logs.failure()}", "run it again; --fixed shows it well"
        )
    pids = ", ".join(f"rank {rank}: {pid}" for rank, pid in job.pids.items())
    _say(f"it hangs. launcher: {job.launcher_pid}, {pids}")
    _say(f"diagnose it from another terminal: ncclprobe diagnose --job {job.run_id} --live-dump")


def _stay(job: "Job", timeout: float | None) -> int:
    _say("it stays until Ctrl-C" + (f" or {timeout:g} s have passed" if timeout else ""))
    try:
        status = job.wait(timeout)
    except KeyboardInterrupt:
        status = None
    _say("the job has ended" if status is not None else "stopping the job")
    return 0


def _diagnose(job: "Job", *, live_dump: bool) -> "Report":
    from ncclprobe import workflow
    from ncclprobe.probe.selection import Selection
    from ncclprobe.probe.source import Options

    request = workflow.Request(options=Options(live_dump=live_dump), selection=Selection(job=job.run_id))
    return workflow.diagnose(workflow.Target(), request, None)


def _compare(chosen: "Repro", ranks: int, report: "Report") -> int:
    from ncclprobe.repro.truth import is_planted, truth_of

    is_right, reason = is_planted(report.verdict, truth_of(chosen, ranks))
    _say(f"{'right' if is_right else 'WRONG'}: {reason}")
    return 0 if is_right else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
