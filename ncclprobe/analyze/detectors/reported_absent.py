"""torch itself reports who did not come: monitored barriers, desync reports, keys that nobody set in the store.

In: log events. Out: a finding for the ranks that are named, or that are left when those who wait are taken away.

A report by name comes from ranks that waited and names those that did not; a wait in the store names nobody, so
something else must show what the others do.
"""

import re
from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.analyze.whereabouts import find_whereabouts
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import BarrierMissing, DesyncReport, Raised, StoreTimeout, WorkTimeout
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

_WAITED = re.compile(r"Timed out waiting \d+ ?ms for|timed out in blocking wait")
_CAME = "successfully reached monitoredBarrier"
_FIX = "Free those ranks (their stacks say from what), or let the others do the same work instead of waiting for it."


def detect(case: Case) -> Iterator[Finding]:
    """At most one. Reports number the ranks of a group: whom they mean is told where only one answer is left."""
    if case.mismatches or case.waits.roots or case.fates:
        return
    named = list(_named(case))
    if named:
        yield _finding(case, *named[0], is_named=True)
        return
    waits = [said for said in case.logs.of(StoreTimeout, Raised) if said.record.rank is not None and _has_waited(said)]
    lost = (said for said in case.logs.of(Raised) if isinstance(said.record.what, Raised))
    waiting = {said.record.rank for said in (*waits, *(said for said in lost if _is_echo(said)))}
    others = tuple(rank for rank in case.expected if rank not in waiting)
    if waits and others and not any(case.logs.of(WorkTimeout)):
        yield _finding(case, others, waits[0], is_named=False)


def _has_waited(said: Said) -> bool:
    """A wait for a key, or for a collective of gloo or with blocking wait: these end in an exception."""
    what = said.record.what
    return isinstance(what, StoreTimeout) or (isinstance(what, Raised) and _WAITED.search(what.message) is not None)


def _is_echo(said: Said) -> bool:
    return isinstance(said.record.what, Raised) and said.record.what.failure.is_echo


def _named(case: Case) -> Iterator[tuple[tuple[int, ...], Said]]:
    yield from _missing(case)
    for said, report in case.logs.facts(DesyncReport):
        numbers = {*report.absent, *report.unfinished}
        absent = case.logs.members.meant(numbers, _known_members(case, report))
        if absent and len(absent) < len(case.expected):
            yield absent, said


def _missing(case: Case) -> Iterator[tuple[tuple[int, ...], Said]]:
    """Who reports is rank 0 of its group. Where another rank than 0 does, groups are smaller than the job.

    A rank that reports, or came to a barrier itself, is in it: it is not the one that is meant.
    """
    reports = list(case.logs.facts(BarrierMissing))
    reporters = {said.record.rank for said, _ in reports}
    came = reporters | {said.record.rank for said, what in case.logs.facts(Raised) if _CAME in what.message}
    for said, missing in reports:
        rank = said.record.rank
        if reporters <= {None, 0}:
            absent: tuple[int, ...] | None = tuple(sorted(missing.ranks))
        else:
            absent = case.logs.members.meant(missing.ranks, {0: rank}) if rank is not None else None
        if absent and not came & set(absent):
            yield absent, said


def _known_members(case: Case, report: DesyncReport) -> dict[int, int]:
    """Number in the group -> rank: the reporters of one call, and all ranks where the group has as many as the job."""
    size, members = case.world_size or len(case.expected), report.members
    if members == tuple(range(size)):
        return {number: number for number in members}
    return {
        other.reporter: said.record.rank
        for said, other in case.logs.facts(DesyncReport)
        if said.record.rank is not None and (other.op, other.seq, other.members) == (report.op, report.seq, members)
    }


def _finding(case: Case, ranks: tuple[int, ...], said: Said, *, is_named: bool) -> Finding:
    where = find_whereabouts(case, ranks)
    is_shown = where.shown_by is not None
    is_blamed = is_named or is_shown
    sure = Confidence.PROBABLE if is_named or where.shown_by == "stacks" or len(ranks) == 1 else Confidence.POSSIBLE
    what = said.record.what
    op, seq = (what.op, what.seq) if isinstance(what, DesyncReport) else ("barrier" if is_named else "init", None)
    return Finding(
        cause=where.cause,
        summary=f"{name_ranks(ranks).capitalize()} did not come to the {op} that the others wait in: {where.doing}."[
            :200
        ],
        guilty_ranks=ranks if is_blamed else (),
        suspects=() if is_blamed else ranks,
        confidence=sure if is_blamed else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        blocked_on=BlockedOn(group="default_pg", seq=seq, op=op),
        where=where.places,
        evidence=(cite_said(said, "who waits, and for whom"), *where.citations),
        next_steps=(f"look at the stacks and the last log lines of {name_ranks(ranks)}",),
        fix=_FIX,
    )


DETECTOR = Detector(causes=(Cause.STUCK_IN_PYTHON, Cause.STUCK_IN_PREPROCESSING), detect=detect)
