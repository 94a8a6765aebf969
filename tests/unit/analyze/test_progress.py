"""A slow job is not a stuck one: what tells them apart without any recorder."""

from dataclasses import replace

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.frames import Frame
from ncclprobe.model.job import JobProcess
from ncclprobe.model.log import LogEvent
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Verdict
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.log.parse import parse
from tests.evidence import TRAIN, both_looks, evidence, in_backward, processes

AUGMENT = (Frame("augment", TRAIN, 3), Frame("train", TRAIN, 8))
ONE_SIDE = {0: in_backward(9), 1: AUGMENT, 2: in_backward(9)}


def running(ms: dict[int, float | None]) -> tuple[Sourced[JobProcess], ...]:
    """A process per rank; for how long its main thread ran between two looks a second apart."""

    def with_run(sourced: Sourced[JobProcess]) -> Sourced[JobProcess]:
        ran_ms = ms[sourced.record.rank or 0]
        first, second = sourced.record.looks
        if ran_ms is not None:
            first, second = replace(first, main_run_ns=7), replace(second, main_run_ns=7 + int(ran_ms * 1e6))
        return Sourced(sourced.artifact, replace(sourced.record, looks=(first, second)))

    return tuple(with_run(sourced) for sourced in processes(ms, len(ms)))


def logs(before: dict[int, str], between: dict[int, str]) -> tuple[Sourced, ...]:  # type: ignore[type-arg]
    """What the logs of ranks held at the first look, and what came until the second."""
    files = [(rank, text, None) for rank, text in before.items()] + [(rank, text, 2) for rank, text in between.items()]
    return tuple(
        Sourced(
            Artifact(
                path=f"hosts/node1/rank_log/rank{rank}.stdout{'.look2' if look else ''}.log",
                kind=Kind.RANK_LOG,
                host="node1",
                origin="log",
                rank=rank,
                look=look,
            ),
            record,
        )
        for rank, text, look in files
        for record in parse(text.encode()).records
        if isinstance(record, LogEvent)
    )


def verdict(ran_ms: dict[int, float | None], **more: object) -> Verdict:
    return analyze(evidence(stacks=both_looks(ONE_SIDE), processes=running(ran_ms), **more)).verdict


@pytest.mark.parametrize("ran_ms", [{0: 0, 1: 30, 2: 0}, {0: None, 1: None, 2: None}, {0: 990, 1: 0, 2: 990}])
def test_others_that_never_woke_or_spin_or_are_not_known_to_wait_for_it(ran_ms: dict[int, float | None]) -> None:
    found = verdict(ran_ms)
    assert (found.cause, found.guilty_ranks) == (Cause.STUCK_IN_PYTHON, (1,))


def test_others_that_woke_have_got_what_they_waited_for_so_nobody_is_blamed() -> None:
    found = verdict({0: 20, 1: 20, 2: 20})
    assert (found.cause, found.guilty_ranks) == (Cause.INCONCLUSIVE, ())


@pytest.mark.parametrize(("ran_ms", "guilty"), [(3, (1,)), (700, ())], ids=["caught as it woke to poll", "it may work"])
def test_a_rank_that_is_seen_on_a_cpu_is_at_work_only_if_it_uses_some(ran_ms: float, guilty: tuple[int, ...]) -> None:
    def active(sourced: Sourced[StackDump]) -> Sourced[StackDump]:
        threads = tuple(replace(thread, is_active=True, owns_gil=False) for thread in sourced.record.threads)
        return Sourced(sourced.artifact, replace(sourced.record, threads=threads))

    seen = tuple(active(one) if one.artifact.rank == 1 else one for one in both_looks(ONE_SIDE))
    found = analyze(evidence(stacks=seen, processes=running({0: 0, 1: ran_ms, 2: 0}))).verdict
    assert found.guilty_ranks == guilty


def steps(*numbers: int) -> str:
    return "".join(f"step {number} loss 0.5\n" for number in numbers)


def test_steps_that_are_logged_between_the_looks_are_progress() -> None:
    said = logs({rank: steps(4, 5) for rank in range(3)}, {rank: steps(6, 7) for rank in range(3)})
    found = verdict({0: 20, 1: 20, 2: 20}, log_events=said)
    assert (found.cause, found.confidence) == (Cause.PROGRESSING, Confidence.PROBABLE)
    assert "step 7" in found.evidence[0].quote


@pytest.mark.parametrize(
    "between",
    [
        {0: steps(6), 2: steps(6)},  # rank 1 logged nothing
        {0: steps(6), 1: steps(5), 2: steps(6)},  # the same step again
        {0: steps(6), 1: "heartbeat: alive\n", 2: steps(6)},
    ],
)
def test_a_rank_that_logged_no_later_step_is_not_known_to_go_on(between: dict[int, str]) -> None:
    said = logs({rank: steps(4, 5) for rank in range(3)}, between)
    assert verdict({0: 20, 1: 20, 2: 20}, log_events=said).cause is not Cause.PROGRESSING
