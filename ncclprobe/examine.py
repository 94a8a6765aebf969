"""What stands in the way of a diagnosis, on every host, and in the settings of the job.

In: hosts and a request, as for a collection; the environment of the shell. Out: a `Checkup`.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from ncclprobe import workflow
from ncclprobe.bundle.reader import Bundle, open_bundle
from ncclprobe.collect.answer import Answer
from ncclprobe.model.checkup import Check, CheckState, Checkup, HostCheckup, RankSettings
from ncclprobe.model.errors import ParseError
from ncclprobe.model.evidence import Artifact, Gap
from ncclprobe.model.manifest import HostOutcome
from ncclprobe.parse import checkup as checkup_format
from ncclprobe.prepare.job_rules import JOB_RULES
from ncclprobe.prepare.lint import lint
from ncclprobe.prepare.rules import RULES
from ncclprobe.probe.discover import NO_RANK
from ncclprobe.workflow import Request, Target

_Record = Check | RankSettings


def examine(
    target: Target,
    request: Request,
    on_answer: Callable[[Answer], None] = lambda answer: None,
    environ: Mapping[str, str] = os.environ,
) -> Checkup:
    """Asks every host. Where no rank runs, the settings of `environ` are judged instead.

    UsageError when it is not clear which job is meant; CollectionError when no host answers.
    """
    with tempfile.TemporaryDirectory(prefix="ncclprobe-") as directory:
        path = Path(directory) / "bundle"
        workflow.collect(target, replace(request, purpose="checkup"), path, on_answer)
        with open_bundle(path) as bundle:
            records = {item.path: (item, _read(bundle, item)) for item in bundle.manifest.items}
            hosts = tuple(_host(outcome, records.values()) for outcome in bundle.manifest.hosts)
    settings = [one for _, found in records.values() for one in found if isinstance(one, RankSettings)]
    ranks = f"{len(settings)} rank{'s' if len(settings) > 1 else ''}"
    whose = ranks if settings else "this shell, in which no rank runs"
    shell = [RankSettings(host="this shell", rank=None, variables=dict(environ))]
    advice = lint(settings or shell, RULES, JOB_RULES)
    return Checkup(hosts=hosts, advice=tuple(advice), settings_of=whose)


def _read(bundle: Bundle, item: Artifact) -> tuple[_Record, ...]:
    """What cannot be read is a check of its own."""
    try:
        parsed = checkup_format.parse(bundle.read(item))
    except ParseError as error:
        return (_problem(item.path, str(error), error.advice),)
    return (*parsed.records, *(_problem(item.path, why, "run it again") for why in parsed.problems))


def _problem(path: str, why: str, action: str) -> Check:
    return Check(name="checkup", state=CheckState.BLOCKED, what=f"{path}: {why}", action=action)


def _host(outcome: HostOutcome, records: Iterable[tuple[Artifact, tuple[_Record, ...]]]) -> HostCheckup:
    found = (one for item, those in records if item.host == outcome.name for one in those)
    checks = [one for one in found if isinstance(one, Check)]
    # That there is no rank is told by a check of its own, which knows why.
    checks += [_from_gap(gap, outcome.name) for gap in outcome.gaps if gap.what != NO_RANK]
    return HostCheckup(host=outcome.name, python=outcome.python, checks=tuple(sorted(checks)))


def _from_gap(gap: Gap, host: str) -> Check:
    who = "" if gap.who == host else f"{gap.who}: "
    return Check(name="host", state=CheckState.BLOCKED, what=f"{who}{gap.what}: {gap.why}", action=gap.action)
