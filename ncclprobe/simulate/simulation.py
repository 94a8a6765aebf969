"""From a request to dumps: choose, plant, run the clock, record.

In: a `Request`. Out: a `Plan`, the runs of all ranks, and the dump of any rank that leaves one. All of it follows from
the request, so that a worker process can make the plan again instead of being sent it.
"""

import contextlib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ncclprobe.model.errors import UsageError
from ncclprobe.model.frames import innermost_user_frame
from ncclprobe.model.report import Cause
from ncclprobe.simulate import clock, recorder
from ncclprobe.simulate.calls import Call, Program
from ncclprobe.simulate.clock import NEVER, Run
from ncclprobe.simulate.dumps import GPUS_PER_HOST, Dump
from ncclprobe.simulate.job import Job, JobKind, find_kind
from ncclprobe.simulate.recorder import STEP_CALL_NS, Entry, Taping
from ncclprobe.simulate.request import Request, dropped_ranks
from ncclprobe.simulate.scenario import CannotPlantError, Planted, Scenario, candidates, too_small
from ncclprobe.simulate.scene import Scene
from ncclprobe.simulate.sites import SITES
from ncclprobe.simulate.truth import Truth
from ncclprobe.simulate.versions import find_version

RING_ENTRIES = 2000  # TORCH_FR_BUFFER_SIZE
_EPOCH_NS = 1_760_000_000_000_000_000
_HANGING_STEPS = 3  # the one that goes wrong, and as many as ranks could run ahead
_SHOWN_ENTRIES = 240
_TIMEOUT_NS = 600_000_000_000
_LEAST_SKEW_S = 0.03
_SMALL_RING = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What the ranks run, and what is wrong with it. `steps` are those that the clock runs."""

    request: Request
    scenario: Scenario
    job: Job
    steps: range
    planted: Planted
    dropped: frozenset[int]

    def program(self, rank: int) -> Program:
        """The rank's program for all steps."""
        changed = self.planted.programs.get(rank)
        return changed if changed is not None else self.job.program(self.job.stage(rank), self.steps)

    @property
    def dumping(self) -> list[int]:
        """Ranks that leave a dump."""
        silent = self.dropped | self.planted.gone
        return [rank for rank in range(self.request.ranks) if rank not in silent]

    @property
    def history_steps(self) -> int:
        """Steps before the run that the recorders may still hold."""
        if self.request.steps is not None:
            return min(self.request.steps, self.job.first_step)
        return min(32, max(3, _SHOWN_ENTRIES // self.job.calls_per_step()))


@dataclass(frozen=True, slots=True)
class Tape:
    """How the dumps are taken: `dump_ns` of the run, up to `skew_ns` later on some ranks; the size of the rings."""

    dump_ns: int
    skew_ns: int
    ring_entries: int


def make_plan(request: Request) -> Plan:
    """UsageError where the scenario, the job or the number of ranks do not go together."""
    version = find_version(request.version)
    if request.is_json and not version.has_json:
        raise UsageError(f"dumps of version {request.version} have no JSON form", "take 2.4 or later, or pickle")
    if request.job is not None:
        find_kind(request.job)
    rng = request.rng("plan")
    scenarios = candidates(request.name, request.ranks, request.job)
    for scenario in rng.sample(scenarios, len(scenarios)):
        for job in [request.job] if request.job else rng.sample(scenario.jobs, len(scenario.jobs)):
            with contextlib.suppress(CannotPlantError):
                return _plan(request, scenario, find_kind(job), rng)
    raise too_small(request.name, request.ranks)


def _plan(request: Request, scenario: Scenario, kind: JobKind, rng: Random) -> Plan:
    layout = kind.lay_out(request.ranks, scenario.needs)
    if any(need in layout.axes and layout.size(need) == 1 for need in scenario.needs):
        raise CannotPlantError
    first_step = kind.log_every * rng.randrange(200, 4000) + (0 if scenario.is_at_log else 3)
    job = Job(kind, layout, first_step)
    steps = range(first_step, first_step + _steps(request, job))
    planted = scenario.plant(Scene(job, rng, steps))
    dropped = dropped_ranks(request, planted.guilty)
    return Plan(request=request, scenario=scenario, job=job, steps=steps, planted=planted, dropped=dropped)


def _steps(request: Request, job: Job) -> int:
    """Enough for a dump that is taken late; a hang needs few."""
    step_s = job.calls_per_step() * STEP_CALL_NS / 2e9
    return _HANGING_STEPS + int(request.skew_s / step_s)


def run_clock(plan: Plan) -> list[Run]:
    """By rank."""
    shared = [plan.job.program(stage, plan.steps) for stage in range(plan.job.stages)]
    programs = [plan.planted.programs.get(rank, shared[plan.job.stage(rank)]) for rank in range(plan.request.ranks)]
    return clock.run(plan.job.layout, programs, plan.planted.broken)


def set_up_tape(plan: Plan, runs: Sequence[Run]) -> Tape:
    """A running job is caught in the middle of a step, a hanging one when its calls time out."""
    if plan.planted.is_running:
        calls = sum(isinstance(op, Call) for op in plan.job.step(0, plan.steps[0]))
        end_ns = runs[0].issued[calls - 1]
        dump_ns = int(end_ns * plan.request.rng("tape").uniform(0.2, 0.9))
        ring = _SMALL_RING if plan.request.has_wrapped else RING_ENTRIES
        return Tape(dump_ns, int(max(plan.request.skew_s, _LEAST_SKEW_S) * 1e9), ring)
    last_ns = max((run.issued[-1] for run in runs if run.issued), default=0)
    return Tape(last_ns + _TIMEOUT_NS, 0, _small_ring(runs) if plan.request.has_wrapped else RING_ENTRIES)


def _small_ring(runs: Sequence[Run]) -> int:
    """Half of what the rank that ran ahead furthest has outstanding: its oldest call is not in its ring any more."""
    outstanding = max((len(run.ended) - run.ended.index(NEVER) for run in runs if NEVER in run.ended), default=0)
    return max(4, outstanding // 2)


def taken_ns(plan: Plan, tape: Tape, rank: int) -> int:
    """When the rank's dump was taken, by the clock of its host."""
    return _started_ns(plan, rank) + _dump_ns(tape, rank)


def _started_ns(plan: Plan, rank: int) -> int:
    """The clocks of hosts differ by up to 2 ms."""
    host_ns = rank // GPUS_PER_HOST * 7919 % 4001 * 1000 - 2_000_000
    return _EPOCH_NS + plan.request.seed % 10_000 * 1_000_000_000 + host_ns


def _dump_ns(tape: Tape, rank: int) -> int:
    return tape.dump_ns + rank * 2_654_435_761 % 1000 * tape.skew_ns // 1000


def dump(plan: Plan, tape: Tape, rank: int, run: Run) -> bytes:
    """The bytes of the rank's dump."""
    request, job, history = plan.request, plan.job, plan.history_steps
    counters = recorder.counters_before(job, job.stage(rank), job.first_step - history)
    taping = Taping(history_steps=history, started_ns=_started_ns(plan, rank), dump_ns=_dump_ns(tape, rank))
    ring = deque(recorder.entries(job, rank, plan.program(rank), run, taping, counters), tape.ring_entries)
    kept = [entry for entry in ring if not (request.is_active_only and entry.completed_ns is not None)]
    return _encode(plan, rank, kept, counters)


def _encode(plan: Plan, rank: int, entries: list[Entry], counters: recorder.Counters) -> bytes:
    version = find_version(plan.request.version)
    axes = plan.job.axes_used(rank)
    written = Dump(job=plan.job, rank=rank, axes=axes, version=version, has_frames=plan.request.has_frames)
    return written.json(entries, counters) if plan.request.is_json else written.pickle(entries, counters)


def truth_of(plan: Plan) -> Truth:
    """What is true of the dumps that are left."""
    planted, job, request = plan.planted, plan.job, plan.request
    has_frames = request.has_frames and not request.is_json
    base = recorder.counters_before(job, job.stage(planted.rank), job.first_step).collective
    seq = base[planted.axis] + planted.number + 1 if planted.axis and planted.number is not None else None
    is_hidden = planted.is_told_by_type and not find_version(request.version).has_types
    return Truth(
        scenario=plan.scenario.name,
        cause=plan.scenario.cause,
        guilty_ranks=tuple(sorted(planted.guilty)),
        also_accept=(
            *planted.also_accept,
            *(() if has_frames else planted.also_accept_without_frames),
            *((Cause.COLLECTIVE_STALLED,) if is_hidden else ()),
        ),
        also_accept_guilty=(*planted.also_accept_guilty, *(((),) if is_hidden else ())),
        group=job.layout.group(planted.axis, planted.rank).label if planted.axis else None,
        seq=seq,
        op=planted.shown.op if planted.shown else None,
        where=innermost_user_frame(SITES[planted.shown.site]) if planted.shown and has_frames else None,
        note=planted.note,
        world_size=request.ranks,
        seed=request.seed,
        dropped=tuple(sorted(plan.dropped)),
        is_all_there=_is_all_there(plan),
    )


def _is_all_there(plan: Plan) -> bool:
    """Whether the dumps that are left tell all: torch 2.2 does not say which group is which, nor who is in it."""
    request, planted = plan.request, plan.planted
    is_cut = bool(plan.dropped) or request.has_wrapped or (request.is_active_only and planted.needs_history)
    is_nameless = find_version(request.version).is_list and (len(plan.job.layout.groups) > 1 or bool(planted.gone))
    return not is_cut and not is_nameless
