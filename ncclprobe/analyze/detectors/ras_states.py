"""What NCCL's RAS service says of the state of a communicator's members: who failed, who never joined.

In: RAS reports. Out: a finding. An error of a remote process is an echo; one of its own is where it began.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.launches import Look
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.ras import RasCommunicator
from ncclprobe.model.report import BlockedOn, Cause, Confidence, Finding

_REMOTE = "Remote process error"
_SETTING_UP = "INIT"


def detect(case: Case) -> Iterator[Finding]:
    """Of the last look, in the communicator of all ranks: only there a member's number is its rank."""
    looks, world = case.launches.looks, case.launches.world
    if not looks or world is None or world.size != case.world_size:
        return
    comm = next((comm for comm in looks[-1].record.communicators if comm.id == world.id), None)
    if comm is not None:
        yield from _failed(case, looks[-1], comm)
        yield from _never_joined(case, looks, comm)


def _failed(case: Case, look: Look, comm: RasCommunicator) -> Iterator[Finding]:
    own = {rank.rank: rank.error for rank in comm.ranks if rank.error and _REMOTE not in rank.error}
    if not own or 2 * len(own) >= (comm.size or 0):
        return
    ranks = tuple(sorted(own))
    yield Finding(
        cause=Cause.RANK_CRASHED,
        summary=f"RAS: {name_ranks(ranks)} reported an error of its own: {own[ranks[0]]}."[:200],
        guilty_ranks=ranks,
        confidence=Confidence.PROBABLE if len(ranks) == 1 else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        evidence=tuple(
            cite(look.artifact, f"communicator {comm.id}", str(own[rank]), f"rank {rank} failed") for rank in ranks[:3]
        ),
        next_steps=(f"read the log of {name_ranks(ranks)}, and dmesg on its host for Xid lines",),
        fix="Fix what that rank reports: an error of the GPU, of the system or of the program.",
    )


def _never_joined(case: Case, looks: tuple[Look, ...], comm: RasCommunicator) -> Iterator[Finding]:
    """At two looks: at one it may be about to."""
    absent = {rank.rank for rank in comm.ranks if rank.state == "missing"}
    earlier = [_missing(look, comm.id) for look in looks[:-1]]
    if not absent or comm.status != _SETTING_UP or 2 * len(absent) >= (comm.size or 0):
        return
    is_same = bool(earlier) and all(those == absent for those in earlier)
    ranks = tuple(sorted(absent))
    yield Finding(
        cause=Cause.RANK_NEVER_JOINED,
        summary=f"{name_ranks(ranks).capitalize()} did not join the communicator that all others are setting up."[:200],
        guilty_ranks=ranks if is_same else (),
        suspects=() if is_same else ranks,
        confidence=Confidence.PROBABLE if is_same else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        blocked_on=BlockedOn(group=f"communicator {comm.id}", seq=None, op="init"),
        evidence=(cite(looks[-1].artifact, f"communicator {comm.id}", comm.status, f"{name_ranks(ranks)} has none"),),
        next_steps=(f"look at the stacks of {name_ranks(ranks)}: what they do before their first collective",),
        fix="Free those ranks, or start the missing ones.",
    )


def _missing(look: Look, comm_id: str) -> set[int]:
    comms = (comm for comm in look.record.communicators if comm.id == comm_id)
    return {rank.rank for comm in comms for rank in comm.ranks if rank.state == "missing"}


DETECTOR = Detector(causes=(Cause.RANK_CRASHED, Cause.RANK_NEVER_JOINED), detect=detect)
