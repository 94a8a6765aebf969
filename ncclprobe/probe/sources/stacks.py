"""Python stacks of every rank at two looks, and of its Python children at the first; then C frames where they decide.

In: the ranks and their children. Out: py-spy's JSON, one file a process and look, each as soon as it is there.

C frames stop a rank, for seconds the first time: they are taken of suspects only, and of one rank for comparison.
"""

import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess, Role
from ncclprobe.probe import pyspy
from ncclprobe.probe.source import Context, Disturbance, Found, Options, Source
from ncclprobe.probe.suspects import find_suspects

_MAX_CHILDREN = 64
_MAX_SUSPECTS = 8
_NATIVE_LOOK = 3
_TIMEOUT_S = {_NATIVE_LOOK: 15.0}  # py-spy reads the symbols of every library first


def collect(context: Context) -> Iterator[Found | Gap]:
    """Two looks, the options' interval apart; a gap for each process that cannot be read."""
    program = pyspy.find(context.tools)
    if not context.ranks:
        return
    if program is None:
        yield Gap(
            who=context.host,
            what="no stacks",
            why="no py-spy for this machine's architecture came along, and none is installed here",
            action="pip install py-spy on the host",
        )
        return
    children = _some_of_each(context.children)
    if len(children) < len(context.children):
        yield _left_out(context, len(children))
    started, unreadable = time.monotonic(), set()
    for process, result in _look(context.options, program, 1, (*context.ranks, *children)):
        yield result
        if isinstance(result, Gap):
            unreadable.add(process.pid)
    time.sleep(max(0.0, context.options.interval_s - (time.monotonic() - started)))
    again = [rank for rank in context.ranks if rank.pid not in unreadable]
    last_looks = {}
    for process, result in _look(context.options, program, 2, again):
        yield result
        if isinstance(result, Found):
            last_looks[process] = result.data
    if context.options.native_stacks:
        yield from _look_below(context.options, program, last_looks)


def _look_below(options: Options, program: Path, last_looks: dict[JobProcess, bytes]) -> Iterator[Found | Gap]:
    """C frames of the ranks that are where few are, and of one of the others."""
    ordered = sorted(last_looks, key=lambda process: (-1 if process.rank is None else process.rank, process.pid))
    suspects = find_suspects({process.pid: last_looks[process] for process in ordered})[:_MAX_SUSPECTS]
    chosen = [process for process in ordered if process.pid in suspects]
    for _, result in _look(options, program, _NATIVE_LOOK, chosen):
        yield result


def _some_of_each(children: Sequence[JobProcess]) -> list[JobProcess]:
    """Compile pools have hundreds of processes: as many of each rank as there is room for, the first of each first."""
    places: dict[int | None, int] = {}
    ordered = []
    for child in children:
        places[child.rank] = place = places.get(child.rank, 0) + 1
        ordered.append((place, child.rank or 0, child.pid, child))
    return [child for *_, child in sorted(ordered, key=lambda entry: entry[:3])[:_MAX_CHILDREN]]


def _left_out(context: Context, taken: int) -> Gap:
    return Gap(
        who=context.host,
        what=f"no stacks of {len(context.children) - taken} children of ranks",
        why=f"there are {len(context.children)}, and at most {_MAX_CHILDREN} are looked at",
        action="nothing, when the ranks' own stacks decide; else py-spy dump on the host",
    )


def _look(
    options: Options, program: Path, look: int, processes: Sequence[JobProcess]
) -> Iterator[tuple[JobProcess, Found | Gap]]:
    """In order of completion, so that one that blocks keeps none of the others back."""
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        jobs = {pool.submit(_dump, program, process, look, options): process for process in processes}
        for done in as_completed(jobs):
            yield jobs[done], done.result()


def _dump(program: Path, process: JobProcess, look: int, options: Options) -> Found | Gap:
    is_rank = process.role is Role.RANK
    dump = pyspy.dump(
        program,
        process.pid,
        blocking_first=options.blocking_stacks,
        native=look == _NATIVE_LOOK,
        timeout_s=_TIMEOUT_S.get(look, 5.0),
    )
    name = f"rank {process.rank}" if is_rank else f"pid {process.pid} (child of rank {process.rank})"
    if not dump.is_good:
        why, action = pyspy.why_not(dump, process.pid)
        return Gap(who=name, what=f"no stacks at look {look}", why=why, action=action)
    stem = f"rank{process.rank}" if is_rank else f"rank{process.rank}-child{process.pid}"
    return Found(
        file=f"{stem}.look{look}.json",
        kind=Kind.STACKS,
        origin=dump.origin,
        data=dump.output,
        rank=process.rank,
        pid=process.pid,
        look=look,
        start_ns=dump.start_ns,
        end_ns=dump.end_ns,
        exit_status=dump.exit_status,
        pause_s=dump.pause_s,
    )


SOURCE = Source(
    name="stacks",
    disturbs=Disturbance.PAUSE,
    collect=collect,
    timeout_s=40.0,
    looks=2,
    is_wanted=lambda options: options.stacks,
)
