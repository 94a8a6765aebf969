"""Dumps of another job, and older dumps of a rank, are said and left out."""

from dataclasses import replace

from ncclprobe.analyze.chosen import choose
from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.records import Evidence
from tests.evidence import WORLD, dumps, mixed, recording

OLD = recording(["a"] * 3, ranks=range(3))
NEW = recording(["a"] * 9, ranks=range(3))


def twice() -> tuple:  # type: ignore[type-arg]
    (old,), (new,) = dumps({0: OLD}), dumps({0: NEW})
    return replace(old, artifact=replace(old.artifact, path="a/rank0.file.dump")), new


def test_of_two_dumps_of_a_rank_the_newer_counts() -> None:
    old, new = twice()
    for given in ((old, new), (new, old)):
        choice = choose(given)
        assert (choice.dumps, choice.earlier) == ((new,), ())
        assert [(gap.who, gap.what) for gap in choice.gaps] == [("rank 0", "a/rank0.file.dump was left out")]


def test_recorders_of_other_groups_do_not_rival() -> None:
    (nccl,) = dumps({0: NEW})
    (gloo,) = dumps({0: mixed(("7", (0, 1), "all_reduce", 1))}, host="other")
    assert choose((nccl, gloo)).dumps == (nccl, gloo)


def test_of_two_jobs_the_one_with_more_dumps_is_meant() -> None:
    most = dumps(dict.fromkeys(range(3), NEW))
    (stray,) = dumps({7: recording(["b"] * 9, group=WORLD, ranks=range(8))}, host="other")
    report = analyze(Evidence(recordings=(*most, stray)))
    assert report.coverage.world_size == 3
    assert any("another job" in gap.why and gap.who == "rank 7" for gap in report.gaps)
    assert 7 not in report.verdict.guilty_ranks
