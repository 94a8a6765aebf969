"""A published bug of the NCCL in use, by what it looks like.

In: the table of `known_bugs`, stacks, settings. Out: a finding when versions and stacks both match.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.known_bugs import KNOWN_BUGS, KnownBug
from ncclprobe.model.log import Setting
from ncclprobe.model.report import Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """One per bug that a rank shows."""
    version, machines = _version(case), _values(case, "machine")
    for bug in KNOWN_BUGS:
        if version is not None and bug.affects(version) and (not bug.machine or bug.machine in machines):
            yield from _shown(case, bug, version)


def _version(case: Case) -> str | None:
    """The NCCL of the job, where all that is said of it agrees."""
    said = _values(case, "nccl")
    said |= {look.record.nccl_version for look in case.launches.looks if look.record.nccl_version}
    said |= {s.record.library_version for s in case.evidence.recordings if s.record.library_version}
    return said.pop().partition("+")[0] if len(said) == 1 else None


def _values(case: Case, name: str) -> set[str]:
    return {what.value for _, what in case.logs.facts(Setting) if what.name == name}


def _shown(case: Case, bug: KnownBug, version: str) -> Iterator[Finding]:
    for sourced in case.evidence.stacks:
        functions = {frame.function for thread in sourced.record.threads for frame in thread.stack}
        if not bug.is_shown_by(functions):
            continue
        rank = sourced.artifact.rank
        who = f"rank {rank}" if rank is not None else "a rank"
        yield Finding(
            cause=Cause.KNOWN_NCCL_BUG,
            summary=f"NCCL {version} on {who} shows a published bug: {bug.what}."[:200],
            guilty_ranks=(rank,) if rank is not None else (),
            confidence=Confidence.PROBABLE,
            victims=tuple(other for other in case.expected if other != rank),
            evidence=(cite(sourced.artifact, "threads", ", ".join(bug.functions), f"{who} is inside the bug"),),
            next_steps=(f"upgrade to NCCL {bug.fixed_in} or later; {bug.workaround}",),
            fix=f"Upgrade NCCL to {bug.fixed_in}.",
        )
        return


DETECTOR = Detector(causes=(Cause.KNOWN_NCCL_BUG,), detect=detect)
