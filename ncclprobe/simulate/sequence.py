"""Faults in the order of a group's calls: some of its ranks make another sequence than the rest.

In: a `Change`: where it can be made, and what it does to a rank's program. Out: what is `Planted`.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

from ncclprobe.model.report import Cause
from ncclprobe.simulate.calls import Call, Host
from ncclprobe.simulate.scenario import CannotPlantError, Planted
from ncclprobe.simulate.scene import Ops, Scene, ahead, call_at, divergence, places

_TRIES = 50
_ENOUGH = 2  # calls that follow, so that the sequences can be laid side by side


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`spots` finds the places on an axis of a program where `edit` makes sense, up to the end of the first step."""

    spots: Callable[[Ops, str], list[int]]
    edit: Callable[[Ops, int, str], Ops]
    note: str
    is_told_by_type: bool = False
    also_accept: tuple[Cause, ...] = ()
    also_accept_without_frames: tuple[Cause, ...] = ()


def plant(scene: Scene, change: Change) -> Planted:
    """On a group and at a place chosen by chance, for one rank of the group or a few."""
    for _ in range(_TRIES):
        rank = scene.any_rank()
        length = len(scene.first_step(rank))
        spots = {
            axis: [place for place in change.spots(scene.program(rank), axis) if place < length]
            for axis in scene.axes(rank)
        }
        axes = [axis for axis, found in spots.items() if found]
        if axes:
            axis = scene.rng.choice(axes)
            return _plant_at(scene, change, rank, axis, scene.rng.choice(spots[axis]))
    raise CannotPlantError


def _plant_at(scene: Scene, change: Change, rank: int, axis: str, place: int) -> Planted:
    group = scene.job.layout.group(axis, rank).ranks
    stage = scene.job.stage(rank)
    guilty = scene.minority([r for r in group if scene.job.stage(r) == stage], rank, of=len(group))
    plain = scene.program(rank)
    changed = change.edit(scene.program(rank), place, axis)
    has_majority = len(group) > 2 * len(guilty)
    number = divergence(plain, changed, axis)
    return Planted(
        guilty=guilty,
        note=change.note,
        programs={r: change.edit(scene.program(r), place, axis) for r in guilty},
        axis=axis,
        rank=rank,
        number=number,
        shown=_collective(changed, axis, number) or _collective(plain, axis, number),
        also_accept=change.also_accept if has_majority else (*change.also_accept, Cause.COLLECTIVE_DESYNC),
        also_accept_without_frames=change.also_accept_without_frames,
        is_told_by_type=change.is_told_by_type,
        also_accept_guilty=() if has_majority else (tuple(group),),
        needs_history=True,
    )


def _collective(program: Ops, axis: str, number: int) -> Call | None:
    found = places(program, axis)
    return call_at(program, found[number]) if number < len(found) else None


def in_the_run(program: Ops, axis: str) -> list[int]:
    """Places where the host goes on to issue more before it waits."""
    return [place for place in places(program, axis) if ahead(program, place, axis) >= _ENOUGH]


def before_another(program: Ops, axis: str) -> list[int]:
    """The same, where the next call differs: leaving one of two equal calls out shows only where they end."""
    found = places(program, axis)
    next_of = dict(pairwise(found))
    return [
        place
        for place in in_the_run(program, axis)
        if place in next_of and not call_at(program, place).agrees_with(call_at(program, next_of[place]))
    ]


def at_the_loss(program: Ops, axis: str) -> list[int]:
    """The reduction of the loss, after which every rank waits for its value."""
    return [place for place in places(program, axis) if call_at(program, place).site == "loss"]


def leave_out(program: Ops, place: int, axis: str) -> Ops:
    """Without that call."""
    return [*program[:place], *program[place + 1 :]]


def leave_out_with_wait(program: Ops, place: int, axis: str) -> Ops:
    """Without that call and the wait for it."""
    wait = program.index(Host.SYNC, place)
    return [*program[:place], *program[place + 1 : wait], *program[wait + 1 :]]


def insert(program: Ops, place: int, axis: str) -> Ops:
    """One more call, not waited for."""
    return [*program[:place], _extra(program, place, axis, "debug"), *program[place:]]


def insert_and_wait(program: Ops, place: int, axis: str) -> Ops:
    """One more call, whose result is read at once."""
    return [*program[:place], _extra(program, place, axis, "metrics.main"), Host.SYNC, *program[place:]]


def _extra(program: Ops, place: int, axis: str, site: str) -> Call:
    timeout_ms = call_at(program, place).timeout_ms
    return Call(axis=axis, op="all_reduce", inputs=((3,),), outputs=((3,),), site=site, timeout_ms=timeout_ms)


def swap_with_next(program: Ops, place: int, axis: str) -> Ops:
    """It and the next on its axis change places."""
    after = places(program, axis)
    other = after[after.index(place) + 1]
    swapped = list(program)
    swapped[place], swapped[other] = program[other], program[place]
    return swapped


def replace_op(program: Ops, place: int, axis: str) -> Ops:
    """Another op on the same data, from another line."""
    call = call_at(program, place)
    if call.op == "all_reduce":
        other = replace(call, op="reduce", root=0, site="loss.reduce" if call.site == "loss" else call.site)
    else:
        other = replace(call, op="all_reduce", inputs=call.outputs, outputs=call.outputs, root=None, is_uneven=False)
    return [*program[:place], other, *program[place + 1 :]]


def resize(program: Ops, place: int, axis: str) -> Ops:
    """The same call on less data: a shorter last batch."""
    call = call_at(program, place)
    inputs, outputs = (
        tuple((max(1, rows * 3 // 4) if rows > 1 else 2, *rest) for rows, *rest in sizes)
        for sizes in (call.inputs, call.outputs)
    )
    return [*program[:place], replace(call, inputs=inputs, outputs=outputs), *program[place + 1 :]]


def retype(program: Ops, place: int, axis: str) -> Ops:
    """The same call on another type: a rank without mixed precision."""
    call = call_at(program, place)
    other = "BFloat16" if call.dtype == "Float" else "Float"
    return [*program[:place], replace(call, dtype=other), *program[place + 1 :]]


def even_in_the_run(program: Ops, axis: str) -> list[int]:
    """As `in_the_run`, without calls whose sizes vary anyway."""
    return [place for place in in_the_run(program, axis) if not call_at(program, place).is_uneven]
