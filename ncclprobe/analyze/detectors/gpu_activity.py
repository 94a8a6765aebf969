"""GPUs that do something else than the rest: one idle, or at work, while the others spin in a collective.

In: what each GPU was doing over its looks, which rank uses it. Out: a finding for the odd ones; where all of them spin,
one that names nobody.

A spinning GPU waits for others. One that is idle belongs to a rank that has not come; one at work to a rank that still
computes. One look can catch a pause, so it names somebody only where something else shows that the job hangs.
"""

from collections.abc import Iterator, Sequence

from ncclprobe.analyze.case import Case, cite
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.devices import devices_by_host, rank_of_device
from ncclprobe.analyze.gpus import GpuDevice, GpuState, are_all_spinning, odd_devices
from ncclprobe.analyze.whereabouts import find_whereabouts
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import WorkTimeout
from ncclprobe.model.report import Cause, Confidence, Finding

_IDLE_FIX = "See what that rank does on the host: its stack and its log say why it did not launch the collective."
_BUSY_FIX = "See what that rank computes: py-spy dump --native, and compare its data with the others'."


def detect(case: Case) -> Iterator[Finding]:
    """Of the GPUs whose rank is known; recorders tell more than that."""
    if case.mismatches or case.waits.roots:
        return
    owned = {device: rank for device in devices_by_host(case) if (rank := rank_of_device(case, device)) is not None}
    devices = tuple(owned)
    odd = [d for d in odd_devices(devices) if d.state in (GpuState.IDLE, GpuState.BUSY)]
    for state in (GpuState.BUSY, GpuState.IDLE):
        of_state = [device for device in odd if device.state is state]
        if of_state:
            yield _odd(case, {owned[device]: device for device in of_state}, devices)
            return
    if are_all_spinning(devices) and set(owned.values()) >= set(case.expected):
        yield _all_spin(case, devices)


def _odd(case: Case, of_rank: dict[int, GpuDevice], devices: Sequence[GpuDevice]) -> Finding:
    ranks = tuple(sorted(of_rank))
    where = find_whereabouts(case, ranks)
    state = of_rank[ranks[0]].state
    bare = Cause.STUCK_IN_CUDA if state is GpuState.BUSY else Cause.STUCK_IN_PYTHON
    is_shown = where.shown_by is not None and where.cause is not Cause.COLLECTIVE_SKIPPED
    timed_out = {said.record.rank for said in case.logs.of(WorkTimeout)}
    is_hung = bool(timed_out) and not timed_out & set(ranks)
    is_named = is_shown or is_hung or all(device.is_sure for device in of_rank.values())
    others = [device for device in devices if device.state is GpuState.SPINNING]
    return Finding(
        cause=where.cause if is_shown else bare,
        summary=(
            f"The GPU of {name_ranks(ranks)} is {state} ({of_rank[ranks[0]].says}) while {len(others)} others spin in "
            "a collective."
        )[:200],
        guilty_ranks=ranks if is_named else (),
        suspects=() if is_named else ranks,
        confidence=Confidence.PROBABLE if is_shown or is_hung else Confidence.POSSIBLE,
        victims=tuple(rank for rank in case.expected if rank not in ranks),
        where=where.places,
        evidence=(
            *(_cite(of_rank[rank], f"rank {rank}: {state}") for rank in ranks[:2]),
            _cite(others[0], f"{len(others)} GPUs spin: a kernel is resident and does nothing"),
            *where.citations,
        ),
        next_steps=(f"look at the stacks of {name_ranks(ranks)}: py-spy dump --native --pid PID on their hosts",),
        fix=_BUSY_FIX if state is GpuState.BUSY else _IDLE_FIX,
    )


def _all_spin(case: Case, devices: Sequence[GpuDevice]) -> Finding:
    return Finding(
        cause=Cause.COLLECTIVE_STALLED,
        summary=f"All {len(devices)} GPUs spin in a collective ({devices[0].says}): everybody waits, nobody computes.",
        guilty_ranks=(),
        confidence=Confidence.POSSIBLE,
        victims=case.expected,
        evidence=tuple(_cite(device, "a kernel is resident and does nothing") for device in devices[:2]),
        next_steps=(
            "look for a GPU or link fault: dmesg for Xid lines, ibstat or ethtool for ports",
            "compare the calls: dumps of the flight recorder, or NCCL_DEBUG_SUBSYS=COLL",
        ),
        fix="Find the faulty link or the call in which the ranks differ.",
    )


def _cite(device: GpuDevice, says: str) -> Citation:
    look = device.looks[-1]
    return cite(look.artifact, f"GPU {device.key}", device.says, says)


DETECTOR = Detector(causes=(Cause.STUCK_IN_PYTHON, Cause.STUCK_IN_CUDA, Cause.COLLECTIVE_STALLED), detect=detect)
