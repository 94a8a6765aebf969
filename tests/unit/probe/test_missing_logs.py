"""Where the log of a rank that is gone lies, told from those of the living."""

from collections.abc import Iterable
from dataclasses import replace

import pytest

from ncclprobe.model.job import JobKey, JobProcess, Role
from ncclprobe.probe import missing_logs
from ncclprobe.probe.missing_logs import Written, find_missing_logs


def rank(number: int, local: int | None = None) -> JobProcess:
    return JobProcess(
        pid=1000 + number,
        role=Role.RANK,
        rank=number,
        local_rank=number if local is None else local,
        world_size=8,
        job=JobKey(),
        command="",
        user="",
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of every rank: four of them on this host."""
    environ = {"LOCAL_WORLD_SIZE": "4"}
    monkeypatch.setattr(missing_logs.proc, "environ", lambda pid: environ)
    return environ


def found(written: Iterable[tuple[JobProcess, str]], stream: str = "stdout") -> dict[int, str]:
    logs = find_missing_logs(Written(process=process, stream=stream, path=path) for process, path in written)
    return {missing.rank: missing.path for missing in logs}


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("/logs/train-4711-{}.out", "0 1 2 3"),
        ("/logs/rank_{}.log", "00 01 02 03"),
        ("/logs/0/rank{}/stdout", "0 1 2 3"),
        ("/tmp/x/logs/none_abc/attempt_0/{}/stderr.log", "0 1 2 3"),
    ],
)
@pytest.mark.usefixtures("here")
def test_the_name_has_the_number_of_the_rank(name: str, numbers: str) -> None:
    names = [name.format(number) for number in numbers.split()]
    assert found([(rank(0), names[0]), (rank(1), names[1]), (rank(3), names[3])]) == {2: names[2]}


@pytest.mark.usefixtures("here")
def test_torchrun_numbers_within_the_host() -> None:
    name = "/logs/none_4/attempt_0/{}/stderr.log"
    alive = [(rank(4, 0), name.format(0)), (rank(5, 1), name.format(1)), (rank(7, 3), name.format(3))]
    assert found(alive) == {6: name.format(2)}


@pytest.mark.usefixtures("here")
def test_of_torchrun_one_live_rank_is_enough() -> None:
    name = "/logs/none_4/attempt_0/{}/stderr.log"
    assert found([(rank(5, 1), name.format(1))]) == {4: name.format(0), 6: name.format(2), 7: name.format(3)}


@pytest.mark.usefixtures("here")
def test_a_single_number_may_mean_anything() -> None:
    assert found([(rank(1), "/runs/1/out-1")]) == {}
    assert found([(rank(1), "/runs/seed1.log")]) == {}


@pytest.mark.usefixtures("here")
def test_names_that_do_not_agree_tell_nothing() -> None:
    assert found([(rank(0), "/logs/a-0.out"), (rank(1), "/logs/b-1.out")]) == {}
    assert found([(rank(0), "/logs/all.out"), (rank(1), "/logs/all.out")]) == {}


def test_without_the_number_of_ranks_only_gaps_are_searched(here: dict[str, str]) -> None:
    here.clear()
    assert found([(rank(0), "/l/t-0.out"), (rank(2), "/l/t-2.out")]) == {1: "/l/t-1.out"}
    here["SLURM_TASKS_PER_NODE"] = "4(x2)"
    assert sorted(found([(rank(0), "/l/t-0.out"), (rank(2), "/l/t-2.out")])) == [1, 3]


def test_ranks_of_other_hosts_are_not_searched(here: dict[str, str]) -> None:
    here["LOCAL_WORLD_SIZE"] = "2"
    assert found([(rank(2, 0), "/l/t-2.out"), (rank(3, 1), "/l/t-3.out")]) == {}


def test_there_is_an_end_to_it(here: dict[str, str]) -> None:
    here["LOCAL_WORLD_SIZE"] = "4096"
    assert len(found([(rank(0), "/l/t-0.out"), (rank(1), "/l/t-1.out")])) == 16


@pytest.mark.usefixtures("here")
def test_ranks_without_a_local_rank_are_searched_between(here: dict[str, str]) -> None:
    processes = [replace(rank(number), local_rank=None) for number in (0, 2)]
    assert found([(process, f"/l/t-{process.rank}.out") for process in processes]) == {1: "/l/t-1.out"}
