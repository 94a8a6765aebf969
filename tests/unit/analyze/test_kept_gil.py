"""A thread that keeps the interpreter lock in a call into C, so that its rank stands still wherever it was."""

from dataclasses import replace

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.frames import Frame
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Verdict
from ncclprobe.model.stacks import StackDump, Thread
from tests.evidence import C10D, TRAIN, both_looks, evidence, in_backward, in_collective, processes

UPLOAD = (Frame("upload", TRAIN, 4), Frame("run", "/usr/lib/python3.11/threading.py", 982))
OTHER = (Frame("decode", TRAIN, 6), Frame("run", "/usr/lib/python3.11/threading.py", 982))


def with_holder(dump: Sourced[StackDump], stack: tuple[Frame, ...]) -> Sourced[StackDump]:
    holder = Thread(name="Thread-1", tid=77, stack=stack, owns_gil=True)
    return Sourced(dump.artifact, replace(dump.record, threads=(*dump.record.threads, holder)))


def verdict(
    main: tuple[Frame, ...], first: tuple[Frame, ...] = UPLOAD, second: tuple[Frame, ...] = UPLOAD, cpu_s: float = 0.0
) -> Verdict:
    """Of a job in which a thread of rank 1 has the lock at both looks."""
    at_look = {1: first, 2: second}
    dumps = both_looks({0: in_backward(9), 1: main, 2: in_backward(9)})
    return analyze(
        evidence(
            stacks=tuple(
                with_holder(dump, at_look[dump.artifact.look or 0]) if dump.artifact.rank == 1 else dump
                for dump in dumps
            ),
            processes=processes(range(3), 3, cpu_s=cpu_s),
        )
    ).verdict


@pytest.mark.parametrize("main", [in_backward(9), in_collective("all_reduce", 7), (Frame("train", TRAIN, 8),)])
def test_the_line_that_keeps_it_is_named_wherever_the_main_thread_is(main: tuple[Frame, ...]) -> None:
    found = verdict(main)
    assert (found.cause, found.guilty_ranks, found.confidence) == (Cause.STUCK_ON_LOCK, (1,), Confidence.PROBABLE)
    assert 4 in [where.line for where in found.where]
    assert "interpreter lock" in found.summary


def test_other_calls_at_the_two_looks_keep_nothing() -> None:
    assert verdict(in_backward(9), first=OTHER).cause is not Cause.STUCK_ON_LOCK


def test_a_process_that_uses_the_cpu_may_compute() -> None:
    assert verdict(in_backward(9), cpu_s=0.9).cause is not Cause.STUCK_ON_LOCK


def test_one_that_waits_for_other_ranks_with_it_is_in_that_collective() -> None:
    hook = (Frame("all_reduce", C10D, 100), *UPLOAD)
    assert verdict(in_backward(9), first=hook, second=hook).cause is not Cause.STUCK_ON_LOCK
