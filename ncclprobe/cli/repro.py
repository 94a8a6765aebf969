"""`ncclprobe repro`: a job that hangs on demand.

In: the name of a reproducer, or all of them. Out: a running, stuck job; with `--diagnose` the verdict on it.
"""

import json
import shlex
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncclprobe.cli import options, output
from ncclprobe.cli.collection import make_target
from ncclprobe.model.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ncclprobe.model.report import Report
    from ncclprobe.rehearsal import Asked, Result, Way
    from ncclprobe.repro.reproducer import Repro
    from ncclprobe.repro.watched_job import WatchedJob
    from ncclprobe.workflow import Target

_DEFAULT_STEP = 400
_ALL_STEP = 20  # with --all: nobody waits for 400 steps of each
_MAX_RANKS = 64  # on one machine


@dataclass(frozen=True, slots=True, kw_only=True)
class _Site:
    """Where the job runs: `target` is None for this machine. `options` lead `diagnose` there."""

    target: "Target | None" = None
    python: str = sys.executable
    options: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many hosts it is."""
        return len(self.target.hosts) if self.target else 1


_HERE = _Site()


def repro(
    name: Annotated[str | None, typer.Argument(help="Which reproducer.", show_default=False)] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List the reproducers.")] = False,
    every: Annotated[
        bool, typer.Option("--all", help="With --diagnose or --fixed: all of them, one after the other.")
    ] = False,
    ranks: Annotated[int | None, typer.Option(help="How many ranks to start, in all.", min=2)] = None,
    at_step: Annotated[
        int | None, typer.Option(help="The step to hang at: 400, with --all 20.", min=1, show_default=False)
    ] = None,
    backend: Annotated[str, typer.Option(help="auto, gloo or nccl.")] = "auto",
    fixed: Annotated[bool, typer.Option("--fixed", help="Run the repaired program to its end instead.")] = False,
    diagnose: Annotated[
        bool, typer.Option("--diagnose", help="Diagnose the job, stop it, compare with the truth.")
    ] = False,
    live_dump: Annotated[bool, typer.Option(help="With --diagnose: ask the ranks for their flight recorder.")] = True,
    ways: Annotated[
        str | None, typer.Option(help="With --all --diagnose: of live, stacks and bundle, with commas, or all.")
    ] = None,
    timeout: Annotated[float | None, typer.Option(help="Stop the job after so many seconds.", min=1.0)] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="Run it over these hosts, by SSH: a file, a set such as node[01-04], or - (standard input)."),
    ] = None,
    python: Annotated[
        str | None,
        typer.Option(help="With --hosts: the Python with torch on each.", show_default="the path of this one"),
    ] = None,
    identity: options.Identity = None,
    accept_new_host_keys: options.AcceptNewHostKeys = False,
    format: options.Format = "console",  # noqa: A002 - the name users type
    no_color: options.NoColor = False,
    verbose: options.Verbose = 0,
) -> None:
    """Start a training job with a planted hang, with real processes, on this machine or over hosts.

    It stays until Ctrl-C, --timeout or the end of the diagnosis. With --diagnose the exit status is 0 when the verdict
    is the planted one, else 1. Needs torch, which the extra named repro brings.
    """
    from ncclprobe.repro import catalog

    if list_all:
        _list(catalog.all_repros())
        return
    _check(name, every, diagnose, fixed, backend, ways, hosts, python)
    from ncclprobe.rehearsal import Asked

    site = _site(hosts, identity, accept_new_host_keys, python)
    _refuse_crowd(ranks, site)
    asked = Asked(ranks=ranks, at_step=at_step or (_ALL_STEP if every else _DEFAULT_STEP), backend=backend)
    if every:
        run_all = _all_fixed if fixed else _all_diagnosed
        raise typer.Exit(run_all(catalog.all_repros(), asked, _ways(ways, live_dump), timeout, format))
    renderer = output.renderer_for(format)
    chosen = catalog.find(name or "")
    if not diagnose:
        raise typer.Exit(_run_to_end(chosen, asked, timeout, site) if fixed else _hang(chosen, asked, timeout, site))
    report = _diagnose(chosen, asked, site, live_dump=live_dump)
    output.show(report, renderer, None, no_color)
    raise typer.Exit(_compare(chosen, _ranks(chosen, asked, site), report))


def _check(
    name: str | None,
    every: bool,
    diagnose: bool,
    fixed: bool,
    backend: str,
    ways: str | None,
    hosts: str | None = None,
    python: str | None = None,
) -> None:
    if name is None and not every:
        raise UsageError("no reproducer is named", "see ncclprobe repro --list")
    if name is not None and every:
        raise UsageError(f"{name} and --all contradict each other", "give one of them")
    if diagnose and fixed:
        raise UsageError("--diagnose and --fixed contradict each other", "the repaired program does not hang")
    if every and not (diagnose or fixed):
        raise UsageError("--all starts no job that stays", "give --diagnose or --fixed with it")
    if every and hosts is not None:
        raise UsageError("--all runs on this machine", "name one reproducer with --hosts")
    if python is not None and hosts is None:
        raise UsageError("--python is for --hosts", "leave it out: here the Python of ncclprobe is used")
    if ways is not None and not (every and diagnose):
        raise UsageError("--ways is for --all --diagnose", "give them, or --no-live-dump for a single one")
    if backend not in ("auto", "gloo", "nccl"):
        raise UsageError(f"there is no backend {backend!r}", "choose one of: auto, gloo, nccl")


def _site(hosts: str | None, identity: Path | None, accept_new_host_keys: bool, python: str | None) -> _Site:
    if hosts is None:
        return _HERE
    return _Site(
        target=make_target(hosts, False, identity, accept_new_host_keys),
        python=python or sys.executable,
        options=("--hosts", hosts, *(("--identity", str(identity)) if identity else ())),
    )


def _refuse_crowd(ranks: int | None, site: _Site) -> None:
    most = _MAX_RANKS * site.size
    if ranks is not None and ranks > most:
        raise UsageError(f"{ranks} ranks are more than {_MAX_RANKS} a host", f"ask for --ranks {most} at most")


def _ways(text: str | None, live_dump: bool) -> "tuple[Way, ...]":
    from ncclprobe.rehearsal import Way

    if text is None:
        return (Way.LIVE if live_dump else Way.STACKS,)
    names = list(Way) if text == "all" else text.split(",")
    unknown = [name for name in names if name not in list(Way)]
    if unknown:
        raise UsageError(f"there is no way {unknown[0]!r} to look at a job", f"of {', '.join(Way)}, or all")
    return tuple(way for way in Way if way in names)


def _list(repros: "tuple[Repro, ...]") -> None:
    from ncclprobe.repro import needs

    for known in repros:
        print(f"{known.name}\n  {known.summary}\n  cause: {known.cause}; needs: {known.needs}\n  {known.expects}")
        missing = needs.missing(known)
        if missing is not None:
            print(f"  not on this machine: {missing[0]}")


def _ranks(chosen: "Repro", asked: "Asked", site: _Site) -> int:
    from ncclprobe.repro.spread import default_ranks

    return asked.ranks if asked.ranks is not None else default_ranks(chosen, site.size)


def _launch(chosen: "Repro", asked: "Asked", site: _Site, *, fixed: bool = False) -> "WatchedJob":
    from ncclprobe.rehearsal import start_on_hosts
    from ncclprobe.repro.launch import launch

    if site.target is not None:
        return start_on_hosts(chosen, site.target, asked, site.python, fixed=fixed)
    count = _ranks(chosen, asked, site)
    return launch(chosen, ranks=count, at_step=asked.at_step, fixed=fixed, backend=asked.backend)


def _all_diagnosed(
    repros: "Iterable[Repro]", asked: "Asked", ways: "tuple[Way, ...]", _timeout: float | None, format_name: str
) -> int:
    from ncclprobe.rehearsal import rehearse

    results = list(rehearse(repros, ways, asked, lambda result: _say(f"{result.name} ({result.way}): {_how(result)}")))
    if format_name == "json":
        print(json.dumps([asdict(result) for result in results], indent=2))
    else:
        print("\n".join(_table(results)))
    return 0 if all(result.is_right is not False for result in results) else 1


def _how(result: "Result") -> str:
    word = {True: "right", False: "WRONG", None: "skipped"}[result.is_right]
    return word if result.is_right else f"{word}: {result.reason}"


def _table(results: "list[Result]") -> list[str]:
    from ncclprobe.model.folding import fold

    head = ("name", "way", "verdict", "ranks", "confidence", "seconds", "")
    rows = [
        (
            *(result.name, result.way, result.cause or "-", fold(result.guilty_ranks) or "-", result.confidence or "-"),
            *("-" if result.seconds is None else f"{result.seconds:.1f}", _how(result)),
        )
        for result in results
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    return ["  ".join(map(str.ljust, map(str, row), widths)).rstrip() for row in (head, *rows)]


def _all_fixed(
    repros: "Iterable[Repro]", asked: "Asked", _ways: "tuple[Way, ...]", timeout: float | None, _format: str
) -> int:
    from ncclprobe.repro import needs

    highest = 0
    for chosen in repros:
        missing = needs.missing(chosen)
        if missing is not None:
            print(f"{chosen.name}: skipped: {missing[0]}")
            continue
        begin = time.monotonic()
        status = _run_to_end(chosen, asked, timeout, _HERE)
        print(f"{chosen.name}: exit status {status} after {time.monotonic() - begin:.1f} s", flush=True)
        highest = max(highest, abs(status))
    return min(highest, 1)


def _run_to_end(chosen: "Repro", asked: "Asked", timeout: float | None, site: _Site) -> int:
    with _launch(chosen, asked, site, fixed=True) as job:
        status = job.wait(timeout)
        reason = job.logs.failure() if status else ""
    if status is None:
        _say(f"it had not ended after {timeout:g} s and was stopped")
        return 1
    _say(f"the repaired program ran to its end, exit status {status}{f': {reason}' if reason else ''}")
    return status


def _hang(chosen: "Repro", asked: "Asked", timeout: float | None, site: _Site) -> int:
    """Until Ctrl-C, or for `timeout` seconds."""
    with _launch(chosen, asked, site) as job:
        _wait_until_ready(job, chosen, asked, site)
        _say("it stays until Ctrl-C" + (f" or {timeout:g} s have passed" if timeout else ""))
        try:
            status = job.wait(timeout)
        except KeyboardInterrupt:
            status = None
        _say("the job has ended" if status is not None else "stopping the job")
    return 0


def _wait_until_ready(job: "WatchedJob", chosen: "Repro", asked: "Asked", site: _Site) -> None:
    from ncclprobe.rehearsal import wait_until_ready
    from ncclprobe.repro.reproducer import JobState

    where = "before its first step" if chosen.is_at_start else f"at step {asked.at_step}"
    does = {JobState.STUCK: f"hang {where}", JobState.ENDED: f"end {where}", JobState.RUNNING: "run on"}[chosen.state]
    _say(f"starting {chosen.name}: it will {does} ...")
    state = wait_until_ready(job, chosen)
    if state is JobState.ENDED:
        _say(f"it has ended; its logs are in {job.place_of_logs}")
        return
    _say(f"it {'hangs' if state is JobState.STUCK else 'runs'}. {job.processes}")
    if not chosen.hosts:
        command = ["ncclprobe", "diagnose", *site.options, "--job", job.name, "--live-dump"]
        _say(f"diagnose it from another terminal: {shlex.join(command)}")


def _diagnose(chosen: "Repro", asked: "Asked", site: _Site, *, live_dump: bool) -> "Report":
    from ncclprobe import rehearsal

    with _launch(chosen, asked, site) as job, tempfile.TemporaryDirectory(prefix="ncclprobe-") as directory:
        _wait_until_ready(job, chosen, asked, site)
        bundle = Path(directory) / "bundle"
        return rehearsal.diagnose(job, chosen, live_dump=live_dump, bundle=bundle, target=site.target)


def _compare(chosen: "Repro", ranks: int, report: "Report") -> int:
    from ncclprobe.repro.truth import is_planted, truth_of

    is_right, reason = is_planted(report.verdict, truth_of(chosen, ranks))
    _say(f"{'right' if is_right else 'WRONG'}: {reason}")
    return 0 if is_right else 1


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
