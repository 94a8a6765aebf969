"""Two dumps of a rank tell a job that goes on from one that stands still."""

from dataclasses import replace

import pytest

from ncclprobe.analyze.chosen import choose
from ncclprobe.analyze.looks import Looks, compare_looks
from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.collectives import GroupStatus, Recording
from ncclprobe.model.records import Evidence, Sourced
from ncclprobe.model.report import Cause, Confidence
from tests.evidence import NOW_NS, dumps, recording

SECOND_NS = 1_000_000_000
WAITING = recording(["a"] * 5, ranks=range(3))
BEHIND = recording(["a"] * 4, completed=4, ranks=range(3))


def look(number: int, of_rank: dict[int, Recording], at_s: float) -> tuple[Sourced[Recording], ...]:
    """Dumps read so many seconds after the first call was made."""
    return tuple(
        replace(
            sourced,
            artifact=replace(
                sourced.artifact,
                path=f"hosts/node1/live_dump/rank{sourced.artifact.rank}.look{number}.dump",
                look=number,
                pid=1000 + (sourced.artifact.rank or 0),
                end_ns=NOW_NS + int(at_s * SECOND_NS),
            ),
        )
        for sourced in dumps(of_rank)
    )


def looks_of(*given: tuple[Sourced[Recording], ...]) -> Looks:
    choice = choose([sourced for dumps_ in given for sourced in dumps_])
    return compare_looks(choice.dumps, choice.earlier)


def test_the_earlier_look_is_kept_for_comparison_and_is_no_gap() -> None:
    choice = choose((*look(1, {0: WAITING}, 1), *look(2, {0: WAITING}, 3)))
    assert [sourced.artifact.look for sourced in choice.dumps] == [2]
    assert [sourced.artifact.look for sourced in choice.earlier] == [1]
    assert choice.gaps == ()


def test_a_rank_that_issued_calls_has_moved() -> None:
    looks = looks_of(look(1, {0: BEHIND}, 1), look(2, {0: WAITING}, 3))
    assert [(pair.rank, pair.calls, pair.ended) for pair in looks.moved] == [(0, 1, 0)]
    assert looks.is_frozen is False


def test_calls_that_ended_are_movement_too() -> None:
    """However long ago the newest was issued."""
    done = recording(["a"] * 5, completed=5, ranks=range(3))
    looks = looks_of(look(1, {0: WAITING}, 60), look(2, {0: done}, 63))
    assert (len(looks.moved), looks.is_frozen) == (1, False)


def test_counters_tell_where_what_ended_is_no_longer_in_the_dump() -> None:
    nothing = recording([], ranks=range(3))
    one, other = (
        replace(nothing, statuses={"0": GroupStatus(last_enqueued=n, last_started=None, last_completed=n)})
        for n in (5, 6)
    )
    assert len(looks_of(look(1, {0: one}, 1), look(2, {0: other}, 3)).moved) == 1


@pytest.mark.parametrize(
    ("first_s", "second_s", "is_frozen"),
    [(1, 3, None), (1, 9, True), (60, 62, True)],
    ids=["a moment", "long enough", "old enough"],
)
def test_standing_still_for_a_moment_proves_nothing(first_s: float, second_s: float, is_frozen: bool | None) -> None:
    assert looks_of(look(1, {0: WAITING}, first_s), look(2, {0: WAITING}, second_s)).is_frozen is is_frozen


def test_one_look_at_a_recorder_that_was_just_written_to_is_no_hang() -> None:
    assert looks_of(look(1, {0: WAITING}, 1)).is_frozen is False
    assert looks_of(look(1, {0: WAITING}, 60)).is_frozen is True


def test_without_times_nothing_is_known() -> None:
    untimed = tuple(replace(s, artifact=replace(s.artifact, end_ns=None)) for s in dumps({0: WAITING}))
    assert looks_of(untimed).is_frozen is None


def test_dumps_of_two_runs_of_a_process_are_not_compared() -> None:
    again = tuple(replace(s, artifact=replace(s.artifact, pid=77)) for s in look(2, {0: WAITING}, 3))
    assert looks_of(look(1, {0: WAITING}, 1), again).pairs == ()
    assert looks_of(look(1, {0: WAITING}, 1), look(2, {0: BEHIND}, 3)).pairs == ()


def test_all_ranks_that_went_on_between_the_looks_are_progress() -> None:
    first = look(1, {rank: recording(["a"] * 5, ranks=range(3)) for rank in range(3)}, 1)
    second = look(2, {rank: recording(["a"] * 9, ranks=range(3)) for rank in range(3)}, 3)
    report = analyze(Evidence(recordings=(*first, *second)))
    assert (report.verdict.cause, report.verdict.confidence) == (Cause.PROGRESSING, Confidence.CERTAIN)
    assert "4 calls issued" in report.verdict.evidence[0].quote


def test_one_rank_that_stood_still_is_no_progress() -> None:
    first = look(1, {0: BEHIND, 1: BEHIND, 2: BEHIND}, 1)
    second = look(2, {0: WAITING, 1: WAITING, 2: BEHIND}, 3)
    verdict = analyze(Evidence(recordings=(*first, *second))).verdict
    assert verdict.cause is not Cause.PROGRESSING


def test_a_rank_that_has_not_come_is_only_suspected_while_calls_are_still_issued() -> None:
    made = {0: WAITING, 1: WAITING, 2: BEHIND}
    young = analyze(Evidence(recordings=look(1, made, 1)))
    assert (young.verdict.cause, young.findings[0].suspects) == (Cause.INCONCLUSIVE, (2,))
    frozen = analyze(Evidence(recordings=(*look(1, made, 1), *look(2, made, 9)))).verdict
    assert (frozen.guilty_ranks, frozen.confidence) == ((2,), Confidence.PROBABLE)


def test_a_stall_is_probable_once_two_looks_show_that_nothing_moves() -> None:
    made = dict.fromkeys(range(3), WAITING)
    at_once = analyze(Evidence(recordings=look(1, made, 1))).verdict
    later = analyze(Evidence(recordings=(*look(1, made, 1), *look(2, made, 9)))).verdict
    assert (at_once.cause, at_once.confidence) == (Cause.COLLECTIVE_STALLED, Confidence.POSSIBLE)
    assert (later.cause, later.confidence) == (Cause.COLLECTIVE_STALLED, Confidence.PROBABLE)
