"""Logs left out, and the order they come in: neither moves the blame to an innocent rank."""

import random
from collections.abc import Callable

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.loading import load_items
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.report import Confidence, Verdict
from tests.log_text import answer, init, says, timeout, traceback

Lines = dict[int, str]
WORLD = 6


def _absent() -> Lines:
    return {rank: timeout(rank, 50) if rank != 4 else answer(4, 49, asked_by=0) for rank in range(WORLD)}


def _absent_and_saving() -> Lines:
    return {**_absent(), 4: says(4, "saving checkpoint to /ckpt/100", at=2) + answer(4, 49, asked_by=0)}


def _other_size() -> Lines:
    return {rank: timeout(rank, 50, size=8 if rank == 2 else 1024) for rank in range(WORLD)}


def _crashed() -> Lines:
    return {rank: traceback(3, "ValueError: bad row") if rank == 3 else timeout(rank, 50) for rank in range(WORLD)}


def _left() -> Lines:
    done = says(1, "cleaning up, destroy_process_group()", at=5)
    return {rank: done if rank == 1 else timeout(rank, 50) for rank in range(WORLD)}


def _never_joined() -> Lines:
    starting = {rank: init(rank, WORLD, is_complete=False) for rank in range(WORLD)}
    return {**starting, 5: says(5, "importing modules")}


SCENARIOS: dict[str, tuple[Callable[[], Lines], int]] = {
    "absent": (_absent, 4),
    "absent-and-saving": (_absent_and_saving, 4),
    "other-size": (_other_size, 2),
    "crashed": (_crashed, 3),
    "left": (_left, 1),
    "never-joined": (_never_joined, 5),
}


def verdict(lines: Lines, order: list[int]) -> Verdict:
    items = [
        (
            Artifact(path=f"{place}-rank{rank}.log", kind=Kind.RANK_LOG, host="", origin="x", rank=rank),
            lambda rank=rank: lines[rank].encode(),
        )
        for place, rank in enumerate(order)
        if lines.get(rank)
    ]
    return analyze(load_items(items)).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize("name", SCENARIOS)
def test_files_in_any_order_give_the_same_answer(name: str) -> None:
    make, guilty = SCENARIOS[name]
    lines = make()
    found = {
        (v.cause, v.guilty_ranks, v.confidence)
        for seed in range(3)
        for v in [verdict(lines, random.Random(seed).sample(range(WORLD), WORLD))]
    }
    assert len(found) == 1
    assert next(iter(found))[1] == (guilty,)


@pytest.mark.parametrize("name", SCENARIOS)
def test_logs_left_out_never_move_the_blame(name: str) -> None:
    make, guilty = SCENARIOS[name]
    lines = make()
    for seed in range(12):
        kept = random.Random(seed).sample(range(WORLD), 1 + seed % (WORLD - 1))
        found = verdict({rank: lines[rank] for rank in kept}, sorted(kept))
        if found.confidence is not Confidence.POSSIBLE:
            assert set(found.guilty_ranks) <= {guilty}, f"only {sorted(kept)}: {found.summary}"
