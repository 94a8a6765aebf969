"""The job never got started: ranks that did not arrive, or that were given a wrong setting.

In: store and communicator lines, settings and versions. Out: a finding. A rank that waits for others at start-up is a
victim; the one without a line is the suspect, and the one whose settings differ from the others' the cause.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.listened import listened_to
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.analyze.phases import Phase
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import (
    Activity,
    CommEvent,
    Setting,
    SetupError,
    StoreTimeout,
    StoreUnreachable,
    StoreWait,
    WorkTimeout,
)
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

# Settings that must be the same on every rank of a job.
_COMMON = ("nccl", "torch", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA")
_FIX_SETTING = (
    "Give all ranks the same settings and versions: compare env | grep -E 'NCCL|MASTER|WORLD' and pip freeze."
)


def detect(case: Case) -> Iterator[Finding]:
    """Nothing once a collective was waited in: then the job had started."""
    if any(case.logs.of(WorkTimeout)) or case.timelines:
        return
    found = [*_too_many(case), *_different_settings(case), *_bad_setup(case)]
    yield from found[:1]
    if not found:
        yield from _never_joined(case)


def _too_many(case: Case) -> Iterator[Finding]:
    """More workers than the world has places."""
    over = [
        (said, what)
        for said, what in case.logs.facts(StoreWait)
        if what.world_size is not None and ((what.joined or 0) > what.world_size or what.rank >= what.world_size)
    ]
    if over:
        size = over[0][1].world_size
        joined = max(w.joined or 0 for _, w in over)
        yield Finding(
            cause=Cause.INIT_MISCONFIGURED,
            summary=f"{joined} workers checked in for a world of {size}: WORLD_SIZE or the rank numbers are wrong.",
            guilty_ranks=(),
            confidence=Confidence.PROBABLE,
            evidence=tuple(cite_said(said, "more workers than places") for said, _ in over[:2]),
            next_steps=("compare WORLD_SIZE with the number of processes that are really started",),
            fix="Set WORLD_SIZE to the number of processes, not of hosts or tasks.",
        )


def _different_settings(case: Case) -> Iterator[Finding]:
    """A setting in which a minority of hosts or ranks differs, where set-up failed."""
    failed = [*case.logs.of(StoreUnreachable), *case.logs.of(SetupError)]
    if not failed:
        return
    for name in _COMMON:
        by_value = _by_value(case, name)
        if len(by_value) < 2:
            continue
        hit = {rank for said in failed for rank in _ranks_of(case, said)}
        ordered = sorted(by_value.items(), key=lambda item: (-len(item[1]), bool(hit & set(item[1])), item[0]))
        (usual, most), (odd, few) = ordered[0], ordered[-1]
        if len(few) == len(most) and (not hit & set(few) or hit & set(most)):
            continue
        ranks = tuple(sorted(few))
        yield Finding(
            cause=Cause.INIT_MISCONFIGURED,
            summary=f"{name_ranks(ranks).capitalize()} have {name}={odd}, {name_ranks(most)} {name}={usual}."[:200],
            guilty_ranks=ranks,
            confidence=Confidence.PROBABLE,
            victims=tuple(rank for rank in case.expected if rank not in ranks),
            evidence=(*(_cite_setting(said, ranks) for said in few.values()), *_cite_failures(failed)),
            next_steps=(f"correct {name} where {name_ranks(ranks)} run, and start again",),
            fix=_FIX_SETTING,
        )
        return


def _by_value(case: Case, name: str) -> dict[str, dict[int, Said]]:
    """Ranks by the value they have; a line of a host counts for all its ranks."""
    found: dict[str, dict[int, Said]] = defaultdict(dict)
    for said, what in case.logs.facts(Setting):
        if what.name != name:
            continue
        for rank in _ranks_of(case, said):
            if not any(rank in others for others in found.values()):
                found[what.value].setdefault(rank, said)
    return {value: dict(sorted(ranks.items())) for value, ranks in found.items() if ranks}


def _ranks_of(case: Case, said: Said) -> tuple[int, ...]:
    """Whom a line is about: its rank, or all of its host."""
    if said.record.rank is not None:
        return (said.record.rank,)
    return case.ranks_of_host(said.record.host) if said.record.host else ()


def _cite_setting(said: Said, ranks: tuple[int, ...]) -> Citation:
    return cite_said(said, f"the setting of {name_ranks(ranks)}")


def _cite_failures(failed: list[Said]) -> Iterator[Citation]:
    for said in failed[:1]:
        yield cite_said(said, "set-up failed there")


def _bad_setup(case: Case) -> Iterator[Finding]:
    """NCCL or torch says itself what is wrong."""
    said = list(case.logs.of(SetupError))
    if not said:
        return
    # Of two versions that differ either may be the wrong one.
    named = {r for _, what in case.logs.facts(SetupError) if "ismatch" not in what.text for r in what.ranks}
    ranks = tuple(sorted(named or {s.record.rank for s in said if s.record.rank is not None}))
    is_few = bool(named) or 2 * len(ranks) < max(len(case.expected), 1) or _are_of_one_host(case, ranks)
    yield Finding(
        cause=Cause.INIT_MISCONFIGURED,
        summary=f"Set-up failed: {said[0].record.quote}"[:200],
        guilty_ranks=ranks if is_few else (),
        confidence=Confidence.PROBABLE,
        evidence=tuple(cite_said(s, "set-up failed") for s in said[:3]),
        next_steps=("compare versions, addresses, interfaces and GPU numbers between the hosts",),
        fix=_FIX_SETTING,
    )


def _are_of_one_host(case: Case, ranks: tuple[int, ...]) -> bool:
    """Whether they are all ranks of one host, and there are others: then it is that host's."""
    hosts = {case.host_of(rank) for rank in ranks}
    host = hosts.pop() if len(hosts) == 1 else None
    return host is not None and case.ranks_of_host(host) == ranks and len(ranks) < len(case.expected)


def _never_joined(case: Case) -> Iterator[Finding]:
    """Ranks without a line, while the others wait for everybody."""
    waiting = _waiting_at_start(case)
    arrived = set(waiting) | {s.record.rank for s in case.logs.of(Activity, StoreTimeout) if s.record.rank is not None}
    heard = case.logs.heard & set(case.expected)
    if _is_counted(case, heard):
        arrived |= heard
    absent = tuple(rank for rank in case.expected if rank not in arrived)
    if not waiting or not absent or case.world_size is None or _is_training(case):
        return
    if 2 * len(waiting) <= len(case.expected) and not _is_counted(case, arrived):
        return
    said = waiting[min(waiting)]
    is_silent = not set(absent) & case.logs.heard and not isinstance(said.record.what, Activity)
    is_named = set(absent) <= listened_to(case)
    yield Finding(
        cause=Cause.RANK_NEVER_JOINED,
        summary=(
            f"{name_ranks(absent).capitalize()} never reached the set-up in which {name_ranks(waiting)} wait for all "
            f"{case.world_size} ranks."
        )[:200],
        guilty_ranks=absent if is_named else (),
        suspects=() if is_named else absent,
        confidence=Confidence.PROBABLE if is_silent and is_named else Confidence.POSSIBLE,
        victims=tuple(sorted(waiting)),
        blocked_on=BlockedOn(group="default_pg", seq=None, op="init"),
        evidence=(cite_said(said, f"{name_ranks(waiting)} wait in set-up"),),
        next_steps=(f"see whether {name_ranks(absent)} were started: the scheduler's task list, ps on their hosts",),
        fix="Start the missing ranks, or lower the world size to what really runs.",
    )


def _is_training(case: Case) -> bool:
    """Whether a line says so, whoever wrote it: then all have joined, and lines of some were lost."""
    return any(what.phase == "training" for _, what in case.logs.facts(Activity))


def _is_counted(case: Case, arrived: Collection[int]) -> bool:
    """Whether the store counted exactly those that are heard: then the others are those that did not come."""
    counts = {what.joined for _, what in case.logs.facts(StoreWait) if what.world_size == case.world_size}
    return len(arrived) in counts and max((count or 0) for count in counts) == len(arrived)


def _waiting_at_start(case: Case) -> dict[int, Said]:
    """Ranks in the store's barrier, in the creation of the communicator of all ranks, or whose last words are of it."""
    waiting = {what.rank: said for said, what in case.logs.facts(StoreWait)}
    for rank in sorted(case.logs.heard):
        last = case.logs.of_rank(rank, Activity)[-1:]
        if last and isinstance(last[0].record.what, Activity) and last[0].record.what.phase == str(Phase.INIT):
            waiting.setdefault(rank, last[0])
    events = Counter[int]()
    for said, what in case.logs.facts(CommEvent):
        if what.size == case.world_size:
            events[what.rank] += {"init-start": 1, "init-complete": -1}.get(what.event, 0)
            if what.event == "init-start":
                waiting.setdefault(what.rank, said)
    return {rank: said for rank, said in waiting.items() if rank not in events or events[rank] > 0}


DETECTOR = Detector(causes=(Cause.INIT_MISCONFIGURED, Cause.RANK_NEVER_JOINED), detect=detect)
