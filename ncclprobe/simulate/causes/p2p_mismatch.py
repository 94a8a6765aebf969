"""Sends and recvs that do not pair up in a pipeline.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from dataclasses import replace

from ncclprobe.model.report import Cause
from ncclprobe.simulate.calls import Call
from ncclprobe.simulate.scenario import Planted, Scenario
from ncclprobe.simulate.scene import Ops, Scene, call_at


def _receiver(scene: Scene) -> tuple[int, int]:
    """A rank of an odd stage, which receives first, and the one before it in the pipeline, which sends first."""
    pipeline = scene.job.layout.group("pp", scene.any_rank()).ranks
    stage = scene.rng.randrange(1, len(pipeline), 2)
    return pipeline[stage], pipeline[stage - 1]


def _missing_recv(scene: Scene) -> Planted:
    rank, sender = _receiver(scene)
    stage = scene.job.stage(rank)
    program = scene.program(rank)
    place = next(at for at in range(len(program)) if _receives_from(program, at, stage - 1))
    return Planted(
        guilty=(rank,),
        note=f"rank {rank} leaves out the recv of one microbatch that rank {sender} sends",
        programs={rank: [*program[:place], *_without_recv(program, place), *program[place + 1 :]]},
        axis="pp",
        rank=rank,
        shown=call_at(program, place),
        also_accept_guilty=((sender, rank),),
    )


def _both_send(scene: Scene) -> Planted:
    rank, peer = _receiver(scene)
    program = scene.program(rank)
    stage = scene.job.stage(rank)
    place = next(at for at in range(len(program)) if _is_exchange(program, at, stage))
    program[place], program[place + 1] = program[place + 1], program[place]
    return Planted(
        guilty=(peer, rank),
        note=f"rank {rank} sends to rank {peer} and rank {peer} to rank {rank} before either receives",
        programs={rank: program},
        axis="pp",
        rank=rank,
        shown=call_at(program, place),
        also_accept_guilty=((rank,),),
    )


def _receives_from(program: Ops, place: int, stage: int) -> bool:
    op = program[place]
    return isinstance(op, Call) and any(not part.is_send and part.peer == stage for part in op.parts)


def _without_recv(program: Ops, place: int) -> Ops:
    """What is left of the call: of a batch its sends, if it has any."""
    call = call_at(program, place)
    sends = tuple(part for part in call.parts if part.is_send)
    return [replace(call, parts=sends)] if sends else []


def _is_exchange(program: Ops, place: int, stage: int) -> bool:
    """A recv from the stage before and a send back to it, in either order."""
    ops = program[place : place + 2]
    calls = [op for op in ops if isinstance(op, Call) and op.is_p2p and not op.is_batch]
    return [call.parts[0].peer for call in calls] == [stage - 1] * 2 and {call.op for call in calls} == {"send", "recv"}


SCENARIOS = (
    Scenario(
        name="p2p-mismatch/missing-recv",
        cause=Cause.P2P_MISMATCH,
        summary="one rank leaves out a recv: a send stays that nobody receives",
        jobs=("megatron", "moe"),
        plant=_missing_recv,
        needs=frozenset({"pp"}),
    ),
    Scenario(
        name="p2p-mismatch/both-send",
        cause=Cause.P2P_MISMATCH,
        summary="two neighbours in the pipeline both send before they receive",
        jobs=("moe",),
        plant=_both_send,
        needs=frozenset({"pp"}),
    ),
)
