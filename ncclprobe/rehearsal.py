"""Reproducers run, diagnosed, and judged by what was planted.

In: reproducers, and the ways to look at each. Out: a `Result` for each of them and each way.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from pathlib import Path

from ncclprobe import workflow
from ncclprobe.model.errors import CollectionError, NcclprobeError
from ncclprobe.model.report import Cause, Report
from ncclprobe.probe.selection import Selection
from ncclprobe.probe.source import Options
from ncclprobe.repro import made_hosts, needs, plain_job
from ncclprobe.repro.hosts_job import HostsJob
from ncclprobe.repro.job import Job
from ncclprobe.repro.launch import launch
from ncclprobe.repro.launch_hosts import launch_on_hosts
from ncclprobe.repro.places import Place
from ncclprobe.repro.reproducer import JobState, Repro
from ncclprobe.repro.spread import default_ranks
from ncclprobe.repro.truth import is_planted, truth_of
from ncclprobe.repro.watched_job import WatchedJob

START_TIMEOUT_S = 120.0
_COLLECTION_TIMEOUT_S = 90.0
_DEADLINE_S = 30.0


class Way(str, Enum):
    """How a job is looked at: with flight-recorder dumps, without, or from a bundle once the job is gone."""

    LIVE = "live"
    STACKS = "stacks"
    BUNDLE = "bundle"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One reproducer, looked at one way. `is_right` is None where it could not be tried; `reason` says why.

    `seconds`: from the start of the diagnosis to the verdict; `start_s`: from the start of the job to its hang.
    """

    name: str
    way: Way
    planted: str
    cause: str = ""
    guilty_ranks: tuple[int, ...] = ()
    confidence: str = ""
    start_s: float | None = None
    seconds: float | None = None
    is_right: bool | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """How the jobs are started; `ranks` None is what each reproducer wants."""

    ranks: int | None = None
    at_step: int
    backend: str = "auto"


def rehearse(
    repros: Iterable[Repro], ways: tuple[Way, ...], asked: Asked, on_result: Callable[[Result], None]
) -> Iterator[Result]:
    """One after the other. What fails is a wrong result, and the next one is tried."""
    for repro in repros:
        for result in _try_one(repro, ways, asked):
            on_result(result)
            yield result


def _try_one(repro: Repro, ways: tuple[Way, ...], asked: Asked) -> Iterator[Result]:
    missing = needs.missing(repro)
    done: list[Way] = []
    try:
        if missing is None:
            for result in _run(repro, ways, asked):
                done.append(result.way)
                yield result
    except NcclprobeError as error:
        left = [way for way in ways if way not in done]
        yield from (_result(repro, way, is_right=False, reason=str(error)) for way in left)
    if missing is not None:
        yield from (_result(repro, way, reason=missing[0]) for way in ways)


def _result(repro: Repro, way: Way, *, is_right: bool | None = None, reason: str) -> Result:
    return Result(name=repro.name, way=way, planted=repro.cause, is_right=is_right, reason=reason)


def _run(repro: Repro, ways: tuple[Way, ...], asked: Asked) -> Iterator[Result]:
    """One job for all ways. The bundle is what the live look collected, and is read when the job is gone."""
    ranks = asked.ranks if asked.ranks is not None else repro.default_ranks
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ncclprobe-") as directory:
        bundle = Path(directory) / "bundle"
        with launch(repro, ranks=ranks, at_step=asked.at_step, backend=asked.backend) as job:
            wait_until_ready(job, repro)
            start_s = time.monotonic() - start
            looks = {way: bundle if way is Way.LIVE else Path(directory) / "other" for way in ways}
            if Way.BUNDLE in looks:
                looks.pop(Way.BUNDLE)
                looks.setdefault(Way.LIVE, bundle)
            for way, place in looks.items():
                begin = time.monotonic()
                report = diagnose(job, repro, live_dump=way is Way.LIVE, bundle=place)
                if way in ways:
                    yield _judged(repro, ranks, way, report, start_s, time.monotonic() - begin)
        if Way.BUNDLE in ways:
            begin = time.monotonic()
            report = workflow.analyze(bundle)
            yield _judged(repro, ranks, Way.BUNDLE, report, start_s, time.monotonic() - begin)


def _judged(repro: Repro, ranks: int, way: Way, report: Report, start_s: float, seconds: float) -> Result:
    verdict = report.verdict
    is_right, reason = is_planted(verdict, truth_of(repro, ranks))
    if way is Way.STACKS and repro.needs_dumps and verdict.cause is Cause.INCONCLUSIVE:
        is_right, reason = True, "inconclusive, as it must be without dumps"
    return Result(
        name=repro.name,
        way=way,
        planted=repro.cause,
        cause=verdict.cause,
        guilty_ranks=verdict.guilty_ranks,
        confidence=verdict.confidence,
        start_s=round(start_s, 1),
        seconds=round(seconds, 1),
        is_right=is_right,
        reason=reason,
    )


def start_on_hosts(
    repro: Repro, target: workflow.Target, asked: Asked, python: str, *, fixed: bool = False
) -> HostsJob:
    """The job over the hosts of `target`, run by their `python`; see `launch_on_hosts`."""
    places = [Place(name=host.name, start=partial(target.transport.start, host)) for host in target.hosts]
    ranks = asked.ranks if asked.ranks is not None else default_ranks(repro, len(places))
    return launch_on_hosts(
        repro, places, ranks=ranks, python=python, at_step=asked.at_step, fixed=fixed, backend=asked.backend
    )


def wait_until_ready(job: WatchedJob, repro: Repro) -> JobState:
    """Until the job does what it is to be diagnosed in. NcclprobeError when it does something else."""
    state = job.wait_for(repro.state, START_TIMEOUT_S)
    # Ranks that lose a peer end under gloo and hang under NCCL: either is a job to diagnose.
    if state is repro.state or (repro.state is JobState.ENDED and state is JobState.STUCK):
        return state
    wanted = {JobState.STUCK: "hang", JobState.ENDED: "end", JobState.RUNNING: "run"}[repro.state]
    reason = job.logs.failure()
    raise NcclprobeError(
        f"the job did not {wanted}: it is {state}{f'; {reason}' if reason else ''}",
        "run it again; --fixed shows it well",
    )


def diagnose(
    job: WatchedJob, repro: Repro, *, live_dump: bool, bundle: Path, target: workflow.Target | None = None
) -> Report:
    """The verdict on a job as it is: its processes, those of its hosts, or what it has left. Writes `bundle`.

    `target`: where it runs, if not on this machine or on hosts that it has made.
    """
    if job.wait(timeout_s=0) is not None:
        return _analyze_remains(job, bundle)
    if repro.hosts and isinstance(job, Job):
        _collect_from_hosts(job, live_dump=live_dump, bundle=bundle)
        return workflow.analyze(bundle)
    request = workflow.Request(options=Options(live_dump=live_dump), selection=Selection(job=job.name))
    return workflow.diagnose(target or workflow.Target(), request, bundle)


def _analyze_remains(job: WatchedJob, bundle: Path) -> Report:
    """Of a job that has ended there are logs, as a person would gather them."""
    if not bundle.exists():
        bundle.mkdir()
        for name, data in job.logs.files().items():
            copy = bundle / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(data)
    return workflow.analyze(bundle)


def _collect_from_hosts(job: Job, *, live_dump: bool, bundle: Path) -> None:
    """The made hosts are in a network of their own: what asks them over SSH must be in it, too."""
    home = job.directory / made_hosts.HOME
    command = [
        *plain_job.entering(job.launcher_pid),
        *["env", f"HOME={home}", "SSH_AUTH_SOCK="],
        *[sys.executable, "-c", "from ncclprobe.cli.main import main; main()", "collect", "--quiet"],
        *["--hosts", str(home / "hosts"), "--job", job.name, "-o", str(bundle), "--deadline", f"{_DEADLINE_S:g}"],
        *(["--live-dump"] if live_dump else []),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_COLLECTION_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        raise CollectionError("the hosts did not answer in time", "run it again") from None
    if not bundle.exists():
        reason = (done.stderr.strip().splitlines() or ["it said nothing"])[0]
        raise CollectionError(f"nothing was collected from the hosts: {reason}", "run it again with -vv")
