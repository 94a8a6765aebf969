"""Simulated jobs for tests, in memory.

In: a scenario, or nothing for a healthy job. Out: plans, runs, dumps as bytes and as parsed evidence.
"""

import pickle
from functools import lru_cache
from typing import Any

from ncclprobe.model.collectives import Recording
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.parse import flight_recorder
from ncclprobe.simulate import clock
from ncclprobe.simulate.calls import Call, Program
from ncclprobe.simulate.clock import Broken, Run
from ncclprobe.simulate.job import Job, find_kind
from ncclprobe.simulate.request import Request
from ncclprobe.simulate.simulation import Plan, dump, make_plan, run_clock, set_up_tape, taken_ns

JOBS = ("ddp", "fsdp", "megatron", "moe")


def plan(name: str, ranks: int, seed: int = 0, **options: Any) -> Plan:
    return make_plan(Request(name=name, ranks=ranks, seed=seed, **options))


@lru_cache(maxsize=64)
def _runs(key: Request) -> list[Run]:
    return run_clock(make_plan(key))


def runs_of(made: Plan) -> list[Run]:
    return _runs(made.request)


def dumps_of(made: Plan) -> dict[int, bytes]:
    runs = runs_of(made)
    tape = set_up_tape(made, runs)
    return {rank: dump(made, tape, rank, runs[rank]) for rank in made.dumping}


def documents_of(made: Plan) -> dict[int, Any]:
    return {rank: pickle.loads(data) for rank, data in dumps_of(made).items()}


def recordings_of(made: Plan) -> dict[int, Recording]:
    """Parsed by our own parser, which must find nothing to complain about."""
    recordings = {}
    for rank, data in dumps_of(made).items():
        parsed = flight_recorder.parse(data)
        assert parsed.problems == ()
        recordings[rank] = parsed.records[0]
    return recordings


def evidence_of(made: Plan) -> Evidence:
    """As read from files whose own time is that of the dump."""
    tape = set_up_tape(made, runs_of(made))
    recordings = tuple(
        Sourced(_artifact(rank, taken_ns(made, tape, rank)), recording)
        for rank, recording in recordings_of(made).items()
    )
    return Evidence(recordings=recordings, kinds={Kind.FLIGHT_RECORDER.value: len(recordings)})


def _artifact(rank: int, time_ns: int) -> Artifact:
    name = f"comm_lib_trace_rank_{rank}"
    return Artifact(
        path=f"files/{name}", kind=Kind.FLIGHT_RECORDER, host="node1", origin=name, rank=rank, end_ns=time_ns
    )


def job(kind: str, ranks: int, needs: frozenset[str] = frozenset()) -> Job:
    found = find_kind(kind)
    return Job(found, found.lay_out(ranks, needs), first_step=1003)


def run_healthy(made: Job, steps: range) -> tuple[list[Program], list[Run]]:
    programs = [made.program(made.stage(rank), steps) for rank in range(made.layout.world_size)]
    return programs, clock.run(made.layout, programs, Broken())


def calls_in(program: Program) -> list[Call]:
    return [op for op in program if isinstance(op, Call)]
