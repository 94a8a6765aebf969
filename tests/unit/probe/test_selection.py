"""One job is chosen or none: never a guess."""

import pytest

from ncclprobe.model.job import JobKey, JobProcess, Role
from ncclprobe.probe.selection import Selection, select

RUN1, RUN2 = JobKey(run_id="run1", master="a:1"), JobKey(run_id="run2", master="a:2")


def process(pid: int, job: JobKey, rank: int | None, role: Role = Role.RANK, user: str = "ann") -> JobProcess:
    return JobProcess(
        pid=pid, role=role, rank=rank, local_rank=rank, world_size=2, job=job, command="python train.py", user=user
    )


ONE_JOB = [process(11, RUN1, 0), process(12, RUN1, 1), process(10, RUN1, None, Role.LAUNCHER)]
TWO_JOBS = [*ONE_JOB, process(21, RUN2, 0, user="bob"), process(22, RUN2, 0, Role.CHILD, user="bob")]


def test_the_only_job_there_is() -> None:
    selected = select(ONE_JOB, Selection())
    assert selected.job == RUN1
    assert [p.pid for p in selected.processes] == [11, 12, 10]
    assert selected.candidates == ()


def test_two_jobs_are_candidates_in_words() -> None:
    selected = select(TWO_JOBS, Selection())
    assert selected.job is None
    assert selected.processes == ()
    assert selected.candidates == (
        "run1 a:1 (2 ranks of ann, pid 11: python train.py)",
        "run2 a:2 (1 ranks of bob, pid 21: python train.py)",
    )


@pytest.mark.parametrize(
    "selection",
    [
        Selection(job="run2"),
        Selection(job="a:2"),
        Selection(job="run2 a:2"),
        Selection(user="bob"),
        Selection(pid=21),
        Selection(pid=22),
        Selection(pid=22, user="bob", job="run2"),
    ],
    ids=str,
)
def test_each_way_to_name_a_job(selection: Selection) -> None:
    assert select(TWO_JOBS, selection).job == RUN2


@pytest.mark.parametrize(
    "selection", [Selection(job="run"), Selection(user="eve"), Selection(pid=11, user="bob")], ids=str
)
def test_no_match_lists_what_there_is(selection: Selection) -> None:
    selected = select(TWO_JOBS, selection)
    assert (selected.job, selected.processes, selected.candidates) == (None, (), ())
    assert len(selected.others) == 2


def test_a_job_of_orphans_alone_is_none() -> None:
    selected = select([process(22, RUN2, 0, Role.CHILD)], Selection())
    assert (selected.job, selected.candidates, selected.others) == (None, (), ())


def test_the_words_of_a_selection() -> None:
    assert str(Selection(job="x", pid=3, user="ann")) == "--job x --pid 3 --user ann"
