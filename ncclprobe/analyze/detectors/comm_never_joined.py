"""Some members of a smaller communicator never call its start, in which the others wait.

In: communicator lines of NCCL's logs. Out: a finding. Who is missing has a number inside the communicator only; that
is a rank where as many ranks are left as could be it: those that took part in no communicator of the same split, and
stand between the neighbours in the order of ranks.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.communicators import Communicator, communicators
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import CommEvent, WorkTimeout
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Of several, the first whose missing members wait in none of the others.

    Nothing where a collective was waited in: then that tells more.
    """
    if any(case.logs.of(WorkTimeout)) or case.timelines or case.fates:
        return
    found = communicators((said.record for said in case.logs.of(CommEvent)), case.logs.world_size)
    stuck = [comm for comm in found if _is_waited_in(comm) and comm.size < len(case.expected)]
    held_up = {member.rank for comm in stuck for member in comm.members.values()}
    for comm in stuck:
        absent = _could_be(case, comm, found, held_up)
        if absent:
            yield _finding(case, comm, absent)
            return


def _is_waited_in(comm: Communicator) -> bool:
    """Whether members began to join and none has: their logs go on to that step, or end at it."""
    return bool(comm.started) and not comm.completed and not comm.aborted and bool(comm.unseen)


def _could_be(
    case: Case, comm: Communicator, found: tuple[Communicator, ...], held_up: set[int | None]
) -> tuple[int, ...]:
    """Ranks that were heard, and may be the missing members; empty where a member's rank is not known."""
    ranks = {number: member.rank for number, member in comm.members.items()}
    known = {number: rank for number, rank in ranks.items() if rank is not None}
    if len(known) < len(ranks) or sorted(known.values()) != [rank for _, rank in sorted(known.items())]:
        return ()
    busy = {
        member.rank
        for other in found
        if other.parent is not None and (other.parent, other.split) == (comm.parent, comm.split)
        for member in other.members.values()
    }
    free = set(case.expected) - set(known.values()) - busy - held_up
    return tuple(sorted(rank for rank in free if any(_is_between(number, rank, known) for number in comm.unseen)))


def _is_between(number: int, rank: int, known: dict[int, int]) -> bool:
    below = [other for place, other in known.items() if place < number]
    above = [other for place, other in known.items() if place > number]
    return max(below, default=-1) < rank and (not above or rank < min(above))


def _finding(case: Case, comm: Communicator, absent: tuple[int, ...]) -> Finding:
    waiting = tuple(sorted(member.rank for member in comm.members.values() if member.rank is not None))
    is_told = len(absent) == len(comm.unseen) and set(absent) <= case.logs.heard
    who = name_ranks(absent) if is_told else f"{len(comm.unseen)} of {name_ranks(absent)}"
    said = _start_of(case, comm)
    return Finding(
        cause=Cause.RANK_NEVER_JOINED,
        summary=(
            f"{who[:1].upper()}{who[1:]} never joined the communicator of {comm.size} ranks that {name_ranks(waiting)} "
            "began to make."
        )[:200],
        guilty_ranks=absent if is_told else (),
        suspects=() if is_told else absent,
        confidence=Confidence.PROBABLE if is_told and len(waiting) > len(absent) else Confidence.POSSIBLE,
        victims=waiting,
        blocked_on=BlockedOn(group=comm.id, seq=None, op="init"),
        evidence=() if said is None else (cite_said(said, f"{name_ranks(waiting)} wait in its start"),),
        next_steps=(f"look at the stacks of {name_ranks(absent)}: py-spy dump --pid PID on their hosts",),
        fix="Let every member of a group come to its first collective, or to new_group, in the same order.",
    )


def _start_of(case: Case, comm: Communicator) -> Said | None:
    pointers = {member.comm for member in comm.members.values()}
    events = case.logs.facts(CommEvent)
    return next((said for said, what in events if what.comm in pointers and what.event == "init-start"), None)


DETECTOR = Detector(causes=(Cause.RANK_NEVER_JOINED,), detect=detect)
