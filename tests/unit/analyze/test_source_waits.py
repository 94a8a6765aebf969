"""A lock that is waited for in C, told from the line of user code."""

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.frames import Frame
from ncclprobe.model.report import Cause, Confidence, Verdict
from tests.evidence import TRAIN, both_looks, evidence, in_backward, processes, source


def verdict(line: str, cpu_s: float = 0.0) -> Verdict:
    """Of a job whose rank 1 is at that line, the other ranks in backward."""
    stacks = {rank: in_backward(9) for rank in (0, 2, 3)}
    stacks[1] = (Frame("add", TRAIN, 2), Frame("train", TRAIN, 8))
    return analyze(
        evidence(
            stacks=both_looks(stacks),
            processes=processes(range(4), 4, cpu_s=cpu_s),
            source_files=source(f"def add(self):\n    {line}\n        pass\n"),
        )
    ).verdict


@pytest.mark.parametrize(
    "line",
    [
        "self.lock.acquire()  # no timeout",
        "if self._lock.acquire():",
        "with self.lock:",
        "with self.locks[rank]:  # one for each",
        "with _index_lock as held:",
        "with self.not_empty_condition:",
        "fcntl.flock(file, fcntl.LOCK_EX)",
    ],
)
def test_a_line_that_takes_a_lock(line: str) -> None:
    found = verdict(line)
    assert (found.cause, found.guilty_ranks, found.confidence) == (Cause.STUCK_ON_LOCK, (1,), Confidence.PROBABLE)
    assert [where.line for where in found.where] == [2]


@pytest.mark.parametrize(
    "line",
    [
        "time.sleep(1)",
        "with open(lock_path) as file:",
        "with self.lock: value = self.read()",
        "with self.lock, open(path) as file:",
        "with torch.no_grad():",
        "clock()",
    ],
)
def test_a_line_that_may_do_something_else(line: str) -> None:
    found = verdict(line)
    assert (found.cause, found.guilty_ranks) == (Cause.STUCK_IN_PYTHON, (1,))


def test_one_that_computes_does_not_wait_for_a_lock() -> None:
    assert verdict("with self.lock:", cpu_s=0.9).cause is not Cause.STUCK_ON_LOCK
