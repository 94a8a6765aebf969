"""A simulated job's dumps and its truth as files.

In: a `Request` and a directory. Out: `truth.json`, and one file a rank under `dumps/`, named as torch names them.
"""

import os
from array import array
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ncclprobe.model.errors import UsageError
from ncclprobe.simulate.clock import Run
from ncclprobe.simulate.dumps import FILE_STEM
from ncclprobe.simulate.request import Request
from ncclprobe.simulate.simulation import Plan, Tape, dump, make_plan, run_clock, set_up_tape, taken_ns, truth_of
from ncclprobe.simulate.truth import Truth

DUMPS, TRUTH = "dumps", "truth.json"
_ALONE = 256  # up to so many ranks a second process costs more than it saves
_BATCH = 64


def write(request: Request, directory: Path, workers: int | None = None) -> Truth:
    """`directory` must be new or empty. `workers`: processes that write, by default one for each core."""
    plan = make_plan(request)
    folder = _make_folder(directory)
    runs = run_clock(plan)
    tape = set_up_tape(plan, runs)
    count = workers if workers is not None else os.cpu_count() or 1
    if request.ranks <= _ALONE or count == 1:
        for rank in plan.dumping:
            _write_one(plan, tape, folder, rank, runs[rank])
    else:
        _write_in_processes(plan, tape, folder, runs, count)
    truth = truth_of(plan)
    (directory / TRUTH).write_text(truth.to_json(), encoding="utf-8")
    return truth


def _make_folder(directory: Path) -> Path:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise UsageError(f"{directory} is not empty", "name a new directory with -o")
        folder = directory / DUMPS
        folder.mkdir()
    except OSError as error:
        raise UsageError(f"{directory} cannot be written: {error.strerror}", "name another directory with -o") from None
    return folder


def _write_one(plan: Plan, tape: Tape, folder: Path, rank: int, run: Run) -> None:
    """The file's own time is that of the dump: it tells how long the calls in it had been outstanding."""
    path, time_ns = folder / f"{FILE_STEM}{rank}", taken_ns(plan, tape, rank)
    path.write_bytes(dump(plan, tape, rank, run))
    os.utime(path, ns=(time_ns, time_ns))


_Batch = list[tuple[int, bytes, bytes]]


def _write_in_processes(plan: Plan, tape: Tape, folder: Path, runs: list[Run], count: int) -> None:
    """Each process makes the plan again; only when calls were issued and ended travels to it."""
    spawn = get_context("spawn")  # the same everywhere, and safe beside threads
    with ProcessPoolExecutor(count, spawn, _begin, (plan.request, tape, folder)) as pool:
        for _ in pool.map(_write_batch, _batches(plan, runs)):
            pass


def _batches(plan: Plan, runs: list[Run]) -> Iterator[_Batch]:
    ranks = plan.dumping
    for start in range(0, len(ranks), _BATCH):
        yield [
            (rank, runs[rank].issued.tobytes(), runs[rank].ended.tobytes()) for rank in ranks[start : start + _BATCH]
        ]


_mine: list[tuple[Plan, Tape, Path]] = []


def _begin(request: Request, tape: Tape, folder: Path) -> None:
    _mine.append((make_plan(request), tape, folder))


def _write_batch(batch: _Batch) -> None:
    plan, tape, folder = _mine[0]
    for rank, issued, ended in batch:
        _write_one(plan, tape, folder, rank, Run(array("q", issued), array("q", ended)))
