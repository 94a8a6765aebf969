"""Live ranks stand in the set-up of the job: somebody was never started there, or was told something else.

In: positions, settings, and which ranks are not there. Out: one finding.

A rank that is missing names itself, if one of the hosts that were asked should have it: others may run on hosts that
nobody asked. A setting names the few that have another value than the rest, if all must have the same.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Position
from ncclprobe.analyze.settings import Value, minority, settings_of
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import Activity
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

_SAME = ("WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")  # for all ranks, whatever their host
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")  # may differ, where hosts name theirs otherwise
_FIX_SETTING = "Give all ranks the same value: compare env | grep -E 'NCCL|GLOO|MASTER|WORLD' on all hosts."
_FIX_ABSENT = "Start the missing ranks, or lower the world size to what really runs."


def detect(case: Case) -> Iterator[Finding]:
    """Nothing once a rank trains, or where a rank has ended: then that is what to look at."""
    waiting = [position for position in case.positions.values() if position.phase is Phase.INIT]
    is_training = any(what.phase == "training" for _, what in case.logs.facts(Activity))
    if not waiting or is_training or case.gone or any(position.is_still is False for position in waiting):
        return
    wrong = next(_wrong_settings(case, waiting), None)
    if wrong is not None:
        yield wrong
    elif len(waiting) == len(case.ranks):
        yield from _absent(case, waiting)


def _wrong_settings(case: Case, waiting: list[Position]) -> Iterator[Finding]:
    settings = settings_of(case)
    for name in (*_SAME, *_INTERFACES):
        of_rank = {rank: value for rank, value in settings.get(name, {}).items() if rank in case.ranks}
        found = minority(of_rank)
        is_named = found is not None and (name in _SAME or _has_usual(case, found[2], found[0]))
        is_whole = name in _SAME or not case.missing
        if found is not None and is_named and is_whole:
            yield _wrong(name, of_rank, *found, waiting)


def _has_usual(case: Case, few: tuple[int, ...], usual: str) -> bool:
    """Whether the hosts of these ranks have the interface that the others use, too, and it is up."""
    up = {(look.artifact.host, look.record.device) for look in case.evidence.ports if look.record.state == "up"}
    return all((case.host_of(rank), usual.lstrip("=")) in up for rank in few)


def _wrong(
    name: str,
    of_rank: dict[int, Value],
    usual: str,
    most: tuple[int, ...],
    few: tuple[int, ...],
    waiting: list[Position],
) -> Finding:
    verb = "has" if len(few) == 1 else "have"
    return Finding(
        cause=Cause.INIT_MISCONFIGURED,
        summary=(
            f"{name_ranks(few).capitalize()} {verb} {name}={of_rank[few[0]].text}, {name_ranks(most)} {name}={usual}, "
            "and the job stands in its set-up."
        )[:200],
        guilty_ranks=few,
        confidence=Confidence.PROBABLE,
        victims=most,
        blocked_on=BlockedOn(group="default_pg", seq=None, op="init"),
        evidence=(of_rank[few[0]].citation, of_rank[most[0]].citation, _cite(waiting)),
        next_steps=(f"correct {name} where {name_ranks(few)} {verb} it from, and start the job again",),
        fix=_FIX_SETTING,
    )


def _absent(case: Case, waiting: list[Position]) -> Iterator[Finding]:
    here = {rank for host in {rank.host for rank in case.ranks.values()} for rank in _block_of(case, host)}
    absent = tuple(rank for rank in case.missing if rank in here)
    if not absent or absent != case.missing:
        return
    who = name_ranks(position.rank for position in waiting)
    yield Finding(
        cause=Cause.RANK_NEVER_JOINED,
        summary=f"{name_ranks(absent).capitalize()} never came to the set-up in which {who} wait."[:200],
        guilty_ranks=absent,
        confidence=Confidence.PROBABLE,
        victims=tuple(position.rank for position in waiting),
        blocked_on=BlockedOn(group="default_pg", seq=None, op="init"),
        evidence=(_cite(waiting),),
        next_steps=(f"see whether {name_ranks(absent)} were started: the launcher's log, the scheduler's task list",),
        fix=_FIX_ABSENT,
    )


def _block_of(case: Case, host: str) -> range:
    """The ranks that a host should have: one after the other, as many as its launcher says, else up to the last."""
    there = [rank for rank in case.ranks.values() if rank.host == host]
    firsts = {rank.rank - rank.local_rank for rank in there if rank.local_rank is not None}
    if len(firsts) != 1 or any(rank.local_rank is None for rank in there):
        return range(0)
    first, last = firsts.pop(), max(rank.rank for rank in there)
    counts = {
        int(text)
        for process in case.evidence.processes
        for name, text in process.record.settings
        if name == "LOCAL_WORLD_SIZE" and process.artifact.host == host and text.isdigit()
    }
    return range(first, first + max(counts) if counts else last + 1)


def _cite(waiting: list[Position]) -> Citation:
    first = waiting[0]
    says = f"{name_ranks(position.rank for position in waiting)}: {first.phase}"
    return cite(first.artifact, "MainThread", str(first.frame), says)


DETECTOR = Detector(causes=(Cause.INIT_MISCONFIGURED, Cause.RANK_NEVER_JOINED), detect=detect)
