"""What one rank's flight recorder holds: entries in the order the calls were made, and counters per group.

In: a job, the rank's program, and when its calls were issued and ended. Out: `Entry` after `Entry`, and `Counters`.

The simulated run begins at a step that comes after thousands of others: sequence numbers start where those would have
brought them, and the last steps before it are filled in as calls that went well.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ncclprobe.simulate.calls import Call, Program
from ncclprobe.simulate.clock import NEVER, Run
from ncclprobe.simulate.job import Job

STEP_CALL_NS = 22_000_000  # wall time per call of a step before the run
_SETUP_CALLS = 3  # collectives of each group before the first step: parameters are broadcast, shapes compared
_POLL_NS = 100_000_000  # the watchdog looks at events that often
_WHOLE = -1


class Entry(NamedTuple):
    """One record. `part`: which send or recv of its call, -1 for the call itself. Times are wall-clock ns."""

    call: Call
    part: int
    record_id: int
    collective_seq: int
    p2p_seq: int
    op_id: int
    created_ns: int
    completed_ns: int | None


@dataclass(slots=True)
class Status:
    """The counters of one group: the last call enqueued and ended, whichever kind moved last."""

    enqueued: int = NEVER
    completed: int = NEVER
    completed_ns: int = NEVER


@dataclass(slots=True)
class Counters:
    """How far a rank has counted, per axis."""

    record: int = 0
    collective: dict[str, int] = field(default_factory=dict)
    p2p: dict[str, int] = field(default_factory=dict)
    ops: dict[str, int] = field(default_factory=dict)
    statuses: dict[str, Status] = field(default_factory=dict)

    def count(self, program: Program, times: int) -> None:
        """As after the whole program, so many times over."""
        for op in program:
            if isinstance(op, Call):
                self.record += op.entries * times
                self.ops[op.axis] = self.ops.get(op.axis, 0) + max(1, len(op.parts)) * times
                counter = self.p2p if op.is_p2p else self.collective
                counter[op.axis] = counter.get(op.axis, 0) + times


@dataclass(frozen=True, slots=True, kw_only=True)
class Taping:
    """How much is recorded. `started_ns`: when the run began, by the rank's clock; `dump_ns`: the dump, after that."""

    history_steps: int
    started_ns: int
    dump_ns: int


def counters_before(job: Job, stage: int, step: int) -> Counters:
    """What every rank of a stage has counted when it enters a step."""
    counters = Counters(
        collective=dict.fromkeys(job.layout.axes, _SETUP_CALLS), ops=dict.fromkeys(job.layout.axes, _SETUP_CALLS)
    )
    logged = -(-step // job.kind.log_every)
    counters.count(job.step(stage, 1), step - logged)
    counters.count(job.step(stage, 0), logged)
    counters.record += _SETUP_CALLS * len(job.layout.axes)
    for axis in job.layout.axes:
        last = max(counters.collective[axis], counters.p2p.get(axis, 0))
        counters.statuses[axis] = Status(last, last)
    return counters


def entries(job: Job, rank: int, program: Program, run: Run, taping: Taping, counters: Counters) -> Iterator[Entry]:
    """Oldest first; `counters` are those before the first, and end as those of the dump."""
    for call, created_ns, completed_ns in _history(job, rank, taping):
        yield from _record(call, created_ns, completed_ns, counters)
    begin_ns = taping.started_ns
    calls = (op for op in program if isinstance(op, Call))
    for call, issued, ended in zip(calls, run.issued, run.ended, strict=False):
        if issued > taping.dump_ns:
            break
        has_ended = ended != NEVER and ended <= taping.dump_ns
        seen_ns = begin_ns + min(ended + _POLL_NS // 2, taping.dump_ns) if has_ended else None
        yield from _record(call, begin_ns + issued, seen_ns, counters)


def _history(job: Job, rank: int, taping: Taping) -> Iterator[tuple[Call, int, int]]:
    stage, last = job.stage(rank), job.first_step
    step_ns = STEP_CALL_NS * job.calls_per_step()
    for number in range(last - taping.history_steps, last):
        begin_ns = taping.started_ns - (last - number) * step_ns + rank * 7919 % 300_000
        calls = [op for op in job.step(stage, number) if isinstance(op, Call)]
        for index, call in enumerate(calls):
            created_ns = begin_ns + index * step_ns * 9 // (len(calls) * 10)
            yield call, created_ns, created_ns + 3_000_000 + (rank * 104_729 + index * 7919) % _POLL_NS


def _record(call: Call, created_ns: int, completed_ns: int | None, counters: Counters) -> Iterator[Entry]:
    """One entry; of a batch one for each part, which stay open for ever, and the one that ends it."""
    axis = call.axis
    counter = counters.p2p if call.is_p2p else counters.collective
    seq = counter[axis] = counter.get(axis, 0) + 1
    status = counters.statuses[axis]
    status.enqueued = seq
    if completed_ns is not None and completed_ns >= status.completed_ns:
        status.completed, status.completed_ns = seq, completed_ns
    for part in range(len(call.parts)) if call.is_p2p else (_WHOLE,):
        counters.ops[axis] += 1
        yield _entry(call, part, created_ns + 1500 * max(0, part), None if call.is_batch else completed_ns, counters)
    if call.is_batch:
        yield _entry(call, _WHOLE, created_ns + 1500 * len(call.parts), completed_ns, counters)


def _entry(call: Call, part: int, created_ns: int, completed_ns: int | None, counters: Counters) -> Entry:
    counters.record += 1
    axis = call.axis
    return Entry(
        call,
        part,
        counters.record - 1,
        counters.collective[axis],
        counters.p2p.get(axis, 0),
        counters.ops[axis],
        created_ns,
        completed_ns,
    )
