"""Where ranks were when the user interrupted a job that stood still: their last tracebacks are stacks.

In: `Logs`. Out: a `Position` for each rank with such a traceback; none for a job that may have been running well.
"""

from ncclprobe.analyze.logs import Logs, Said
from ncclprobe.analyze.phases import place_of
from ncclprobe.analyze.positions import Position
from ncclprobe.model.frames import innermost_user_frame
from ncclprobe.model.log import Activity, Raised, StoppedByLauncher, WorkTimeout

# A step, an evaluation or a checkpoint may take minutes; people wait longer before they give up.
_STILL_NS = 300 * 1_000_000_000


def find_interrupted(logs: Logs) -> dict[int, Position]:
    """By rank, in order. A rank whose watchdog had given up before was no longer where it hung."""
    interrupts = [said for said in logs.of(Raised) if _is_interrupt(said)]
    if not interrupts or not _stood_still(logs, interrupts):
        return {}
    over = {said.record.rank for said in logs.of(WorkTimeout)}
    found: dict[int, Position] = {}
    for said in interrupts:
        rank = said.record.rank
        if rank is not None and rank not in over:
            found.setdefault(rank, _position(rank, said))
    return dict(sorted(found.items()))


def _is_interrupt(said: Said) -> bool:
    what = said.record.what
    return isinstance(what, Raised) and what.exception.endswith("KeyboardInterrupt") and bool(what.stack)


def _stood_still(logs: Logs, interrupts: list[Said]) -> bool:
    """Whether a clock shows that nothing had been said for long: else the stacks are of a moment like any other."""
    ends = [said.record.when_ns for said in (*interrupts, *logs.of(StoppedByLauncher)) if said.record.when_ns]
    steps = [said.record.when_ns for said in logs.of(Activity) if said.record.when_ns]
    return bool(ends) and bool(steps) and min(ends) - max(steps) > _STILL_NS


def _position(rank: int, said: Said) -> Position:
    assert isinstance(said.record.what, Raised)
    stack = said.record.what.stack
    return Position(
        rank=rank,
        place=place_of(stack),
        user_frame=innermost_user_frame(stack),
        stack=stack,
        artifact=said.artifact,
        is_still=None,
        cpu_share=None,
        gil_owner=None,
    )
