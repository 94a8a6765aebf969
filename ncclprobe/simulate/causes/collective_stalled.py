"""A call that every member has made and that ends nowhere: the network.

In: a `Scene`, the job in which to plant it. Out: `SCENARIOS`.
"""

from ncclprobe.model.report import Cause
from ncclprobe.simulate.calls import Call
from ncclprobe.simulate.clock import Broken
from ncclprobe.simulate.scenario import CannotPlantError, Planted, Scenario
from ncclprobe.simulate.scene import Scene, call_at, places

_TRIES = 50


def _anywhere(scene: Scene) -> Planted:
    return _stall(scene, is_rooted=False)


def _broadcast(scene: Scene) -> Planted:
    """Its root has sent and is done, as it may be: a near miss of a GPU that lags behind its peers."""
    return _stall(scene, is_rooted=True)


def _stall(scene: Scene, *, is_rooted: bool) -> Planted:
    for _ in range(_TRIES):
        rank = scene.any_rank()
        program = scene.program(rank)
        found = [
            place
            for axis in scene.axes(rank)
            for place in places(program, axis)
            if (call_at(program, place).op == "broadcast") is is_rooted and place < len(scene.first_step(rank))
        ]
        if found:
            return _planted(scene, rank, scene.rng.choice(found))
    raise CannotPlantError


def _planted(scene: Scene, rank: int, place: int) -> Planted:
    program = scene.program(rank)
    call = call_at(program, place)
    number = places(program, call.axis).index(place)
    group = scene.job.layout.axes[call.axis].group[rank]
    return Planted(
        guilty=(),
        note="all members issued this call, and it ends nowhere",
        broken=Broken(calls=frozenset({(group, -1, -1, number)})),
        axis=call.axis,
        rank=rank,
        number=number,
        shown=call,
        also_accept=(Cause.NETWORK_FAULT,),
    )


def _message(scene: Scene) -> Planted:
    """The first message between two stages: both ends have posted it."""
    layout = scene.job.layout
    pipeline = layout.group("pp", scene.any_rank()).ranks
    sender, receiver = pipeline[0], pipeline[1]
    send = next(op for op in scene.program(sender) if isinstance(op, Call) and op.is_p2p)
    group = layout.axes[send.axis].group[sender]
    return Planted(
        guilty=(),
        note=f"rank {sender} sends and rank {receiver} receives, and it ends nowhere",
        broken=Broken(calls=frozenset({(group, sender, receiver, 0)})),
        axis=send.axis,
        rank=sender,
        shown=send,
        also_accept=(Cause.NETWORK_FAULT,),
    )


SCENARIOS = (
    Scenario(
        name="collective-stalled/network",
        cause=Cause.COLLECTIVE_STALLED,
        summary="every member issued the call, none ends it",
        jobs=("ddp", "fsdp", "megatron", "moe"),
        plant=_anywhere,
    ),
    Scenario(
        name="collective-stalled/broadcast",
        cause=Cause.COLLECTIVE_STALLED,
        summary="a broadcast that only its root has ended",
        jobs=("ddp", "megatron", "moe"),
        plant=_broadcast,
        needs=frozenset({"tp"}),
    ),
    Scenario(
        name="collective-stalled/message",
        cause=Cause.COLLECTIVE_STALLED,
        summary="a send and its recv, neither of which ends",
        jobs=("megatron", "moe"),
        plant=_message,
        needs=frozenset({"pp"}),
    ),
)
