"""The story on one page: collect evidence into a bundle, analyse a bundle, or both. The public Python API.

In: hosts and a request, or the path of a bundle. Out: a bundle on disk, or a `Report`.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ncclprobe import __version__
from ncclprobe.analyze.verdict import analyze as judge
from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.collect.answer import Answer
from ncclprobe.collect.gather import Request, gather
from ncclprobe.collect.hosts import Host
from ncclprobe.collect.transport import Transport
from ncclprobe.collect.transport.local import LocalTransport
from ncclprobe.inputs import open_inputs
from ncclprobe.loading import load_items
from ncclprobe.model.errors import CollectionError, UsageError
from ncclprobe.model.report import Report

__all__ = ["Request", "Target", "analyze", "collect", "diagnose"]


@dataclass(frozen=True, slots=True)
class Target:
    """Which hosts to ask, and the way to them. The default is this machine."""

    hosts: tuple[Host, ...] = (Host(name="localhost", address="localhost"),)
    transport: Transport = field(default_factory=LocalTransport)


def collect(
    target: Target, request: Request, bundle: Path, on_answer: Callable[[Answer], None] = lambda answer: None
) -> None:
    """Writes the bundle at `bundle` (a new directory, or an archive by its name).

    UsageError when it is not clear which job is meant; CollectionError when no host gave anything and none could say
    why it has nothing.
    """
    with BundleWriter.create(bundle, __version__, None, request.options.interval_s) as writer:
        answers = gather(target.hosts, target.transport, request, writer, on_answer)
        jobs = {str(answer.job) for answer in answers if answer.job}
        if len(jobs) == 1:
            writer.set_job(jobs.pop())
    _refuse_ambiguity(answers, request)
    if answers and all(not answer.is_whole and not answer.artifact_count for answer in answers):
        first = answers[0].gaps[0]
        hosts = "the host" if len(answers) == 1 else f"any of the {len(answers)} hosts"
        raise CollectionError(f"nothing could be collected from {hosts}; {first.who}: {first.why}", first.action)


def analyze(*paths: Path) -> Report:
    """The report on a bundle, or on any files and directories of evidence, in any mix."""
    with open_inputs(paths) as inputs:
        return judge(load_items(inputs.items, inputs.hosts, inputs.gaps))


def diagnose(
    target: Target, request: Request, bundle: Path | None, on_answer: Callable[[Answer], None] = lambda answer: None
) -> Report:
    """Collects and analyses. Without `bundle` the evidence is kept only as long as that takes."""
    if bundle is not None:
        collect(target, request, bundle, on_answer)
        return analyze(bundle)
    with tempfile.TemporaryDirectory(prefix="ncclprobe-") as directory:
        return diagnose(target, request, Path(directory) / "bundle", on_answer)


def _refuse_ambiguity(answers: list[Answer], request: Request) -> None:
    candidates = sorted({name for answer in answers for name in answer.jobs})
    jobs = sorted({str(answer.job) for answer in answers if answer.job})
    if candidates:
        raise UsageError(f"several jobs run there: {'; '.join(candidates)}", "choose one with --job, --pid or --user")
    if len(jobs) > 1:
        raise UsageError(f"the hosts run different jobs: {'; '.join(jobs)}", "choose one with --job")
    others = sorted({name for answer in answers for name in answer.others})
    if not jobs and others:
        raise UsageError(f"no job there matches {request.selection}", f"there are: {'; '.join(others)}")
