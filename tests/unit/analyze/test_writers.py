"""Whose lines are that do not say it."""

from collections.abc import Iterable

import pytest

from ncclprobe.analyze.writers import name_writers
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.log import Died, LogEvent, LogFact, Setting, WorldSize
from ncclprobe.model.records import Sourced

Said = Sourced[LogEvent]
DIED = Died(exit_status=1)
NOTE = Setting(name="x", value="y")


def said(path: str, what: LogFact, rank: int | None = None, local: int | None = None, host: str | None = None) -> Said:
    artifact = Artifact(path=path, kind=Kind.RANK_LOG, host="", origin="")
    return Sourced(artifact, LogEvent(line=1, quote="q", what=what, rank=rank, local_rank=local, host=host))


def rank_of_the_dead(*events: Said) -> list[int | None]:
    return [said.record.rank for said in name_writers(list(events), ()) if isinstance(said.record.what, Died)]


def run(host: str, ranks: Iterable[int], first: int) -> list[Said]:
    return [said(f"{host}/run/attempt_0/{rank - first}/stderr.log", NOTE, rank) for rank in ranks]


def test_a_directory_of_torchrun_is_a_local_rank() -> None:
    died = said("b/run/attempt_0/2/stderr.log", DIED)
    assert rank_of_the_dead(*run("a", (0, 1, 2, 3), 0), *run("b", (4, 5, 7), 4), died) == [6]
    assert rank_of_the_dead(died) == [None]


def test_neighbours_that_contradict_each_other_tell_nothing() -> None:
    first, other = said("m.log", NOTE, 0, 0), said("m.log", NOTE, 8, 0)
    assert rank_of_the_dead(first, other, said("m.log", DIED, local=1)) == [None]
    assert rank_of_the_dead(first, said("m.log", DIED, local=1)) == [1]


def test_the_launcher_says_which_ranks_a_host_has() -> None:
    first = said("m.log", Setting(name="FIRST_RANK", value="4"), host="b")
    assert rank_of_the_dead(first, said("m.log", DIED, local=2, host="b"), said("m.log", DIED, local=2)) == [6, None]


@pytest.mark.parametrize(("processes", "rank"), [("4", 1), ("2", None)])
def test_on_a_jobs_only_host_local_ranks_are_ranks(processes: str, rank: int | None) -> None:
    size, local = said("m.log", WorldSize(size=4)), said("m.log", Setting(name="NPROC_PER_NODE", value=processes))
    assert rank_of_the_dead(size, local, said("m.log", DIED, local=1)) == [rank]


def test_files_whose_numbers_are_the_ranks_that_speak_in_them() -> None:
    files = [said(f"worker-{rank}.out", NOTE, rank) for rank in (0, 1, 3)]
    died = said("worker-2.out", DIED)
    assert rank_of_the_dead(*files, died) == [2]
    assert rank_of_the_dead(*files[:1], died) == [None]  # one file may be a chance


def test_files_of_hosts_are_not_of_ranks() -> None:
    files = [said("node0.log", NOTE, 0), said("node1.log", NOTE, 8)]
    assert rank_of_the_dead(*files, said("node1.log", DIED)) == [None]


def test_a_host_with_one_rank_is_that_rank_when_all_are() -> None:
    hosts = [said("k.log", NOTE, rank, host=f"pod-{rank}") for rank in range(3)]
    died = said("describe.txt", DIED, host="pod-2")
    assert rank_of_the_dead(*hosts, said("k.log", WorldSize(size=3)), died) == [2]
    assert rank_of_the_dead(*hosts, said("k.log", WorldSize(size=6)), died) == [None]
    node = said("describe.txt", Setting(name="node", value="pod-1"), host="other-name")
    assert rank_of_the_dead(*hosts, said("k.log", WorldSize(size=3)), node, said("d", DIED, host="other-name")) == [1]
