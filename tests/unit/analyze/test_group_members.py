"""Numbers inside process groups: whom they mean by whatever names members, and that nobody is guessed."""

from pathlib import Path

import pytest

from ncclprobe.analyze.group_members import Members, find_members
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.log import LogGroup
from ncclprobe.model.records import Sourced
from ncclprobe.parse import flight_recorder
from tests.dumps import Group, call, dump
from tests.log_text import clock, report_on, says

# Two tensor groups of neighbours and two data groups across them, of four ranks.
GROUPS = {"1": (0, 1), "2": (2, 3), "3": (0, 2), "4": (1, 3)}


def member(guid: str, number: int, *, is_own_count: bool = False) -> LogGroup:
    return LogGroup(name=guid, group_rank=number, is_own_count=is_own_count)


@pytest.mark.parametrize(
    ("known", "number", "rank"),
    [
        ({0: 4, 1: 6}, 1, 6),
        ({0: 4, 2: 6}, 1, 5),
        ({0: 4, 2: 7}, 1, None),
        ({2: 2}, 0, 0),
        ({2: 3}, 0, None),
        ({0: 0, 1: 1}, 2, None),
        ({}, 0, None),
    ],
    ids=["told", "only one between", "two between", "none below", "one too many below", "above", "nothing"],
)
def test_a_number_is_a_rank_where_no_other_is_left(known: dict[int, int], number: int, rank: "int | None") -> None:
    assert Members(of_group={"7": known}).rank(member("7", number)) == rank


def test_the_count_of_one_process_is_no_name() -> None:
    assert Members(of_group={"1": {0: 4}}).rank(member("1", 0, is_own_count=True)) is None


def test_groups_that_fit_must_agree() -> None:
    one, other = {0: 0, 1: 1}, {0: 0, 1: 2}
    assert Members(of_group={"1": one}).meant([1], {0: 0}) == (1,)
    assert Members(of_group={"1": one, "3": other}).meant([1], {0: 0}) is None
    assert Members(of_group={"1": one, "3": other}).meant([1], {0: 5}) is None


def progress(guid: str, number: int, seq: int) -> str:
    """The watchdog's own line of a rank that waits, from a process whose launcher puts nothing in front of it."""
    return (
        f"[E{clock(600)} ProcessGroupNCCL.cpp:2271] [PG ID 1 PG GUID {guid}(mesh) Rank {number}]  failure detected by "
        f"watchdog at work sequence id: {seq} PG status: last enqueued work: {seq}, last completed work: {seq - 1}\n"
    )


# Ranks 0 and 2 wait for each other's peers, rank 1 waits for rank 3, which saves a checkpoint.
WAITS = progress("1", 0, 31) + progress("4", 0, 12) + progress("2", 0, 31)
SAVES = "world_size=4\n" + says(3, "saving checkpoint to /ckpt/100", at=2)


def options(guid: str, number: int, rank: int) -> str:
    return (
        f"I0901 10:00:00.665375 {500 + rank} ProcessGroupNCCL.cpp:869] [PG ID 1 PG GUID {guid}(mesh) Rank {number}] "
        f"ProcessGroupNCCL initialization options: size: 2, global rank: {rank}, TIMEOUT(ms): 600000, "
        f"USE_HIGH_PRIORITY_STREAM: 0, SPLIT_FROM: 0, SPLIT_COLOR: 0, PG Name: {guid}\n"
    )


def test_lines_of_groups_alone_name_nobody(tmp_path: Path) -> None:
    verdict = report_on(tmp_path, train_log=SAVES + WAITS).verdict
    assert (verdict.cause, verdict.guilty_ranks) == ("inconclusive", ())


def test_what_each_rank_printed_as_it_joined_tells_the_members(tmp_path: Path) -> None:
    joined = "".join(options(guid, number, rank) for guid, ranks in GROUPS.items() for number, rank in enumerate(ranks))
    verdict = report_on(tmp_path, train_log=joined + SAVES + WAITS).verdict
    assert (verdict.cause, verdict.guilty_ranks, verdict.victims) == ("stuck-in-checkpoint", (3,), "0-2")


def test_recorders_tell_the_members() -> None:
    groups = [Group(name=guid, description="mesh", ranks=GROUPS[guid]) for guid in ("2", "4")]
    made = dump([call("all_reduce", group=group) for group in groups], groups=groups)
    (recording,) = flight_recorder.parse(made).records
    artifact = Artifact(path="nccl_trace_rank_3", kind=Kind.FLIGHT_RECORDER, host="", origin="")
    members = find_members([], [Sourced(artifact, recording)])
    assert [members.rank(member(guid, 0)) for guid in ("2", "4", "1")] == [2, 1, None]
    assert members.whole(member("2", 0)) == (2, 3)


def counted(rank: int, number: int, enqueued: int, completed: int) -> str:
    """torch 2.4: every process counts its groups by itself, so that both tensor groups are `PG 1`."""
    return (
        f"[rank{rank}]:[E{clock(600)} ProcessGroupNCCL.cpp:1785] [PG 1 Rank {number}] Exception (either an error or "
        f"timeout) detected by watchdog at work: {completed + 1}, last enqueued NCCL work: {enqueued}, last completed "
        f"NCCL work: {completed}.\n"
    )


def test_two_groups_of_one_number_are_not_compared(tmp_path: Path) -> None:
    """One tensor group of a pipeline is a call further than the other: nobody is behind."""
    lines = counted(0, 0, 31, 30) + counted(1, 1, 31, 30) + counted(2, 0, 30, 29) + counted(3, 1, 30, 29)
    verdict = report_on(tmp_path, train_log="world_size=4\n" + lines).verdict
    assert verdict.guilty_ranks == ()


def desynced(rank: int, number: int, listed: str = "0, 1, 3") -> str:
    return (
        f"[rank{rank}]:[E{clock(600)} ProcessGroupNCCL.cpp:1790] Rank {rank}\n"
        f"\t - [{number}] Timeout at collective: ALLREDUCE, #31\n"
        "\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:\n"
        "\t   - [2] finished collective #30, but didn't join collective #31 (count from 1)\n"
        "\t - Snapshot of ranks' latest states:\n"
        "\t   #31 started ranks:\n"
        f"\t     [{listed}] started ALLREDUCE\n"
    )


@pytest.mark.parametrize(
    ("reporters", "world", "guilty"),
    [
        ({4: 0, 5: 1, 7: 3}, 8, (6,)),
        ({4: 0, 6: 1, 9: 3}, 12, ()),
        ({0: 0, 1: 1}, 8, ()),
        ({0: 0, 1: 1, 3: 3}, 4, (2,)),
        ({0: 0}, 4, (2,)),
    ],
    ids=["only one is left", "two may be meant", "a group of the first ranks, or not", "the job", "the job, by one"],
)
def test_a_desync_report_names_a_rank_of_its_group(
    tmp_path: Path, reporters: dict[int, int], world: int, guilty: tuple[int, ...]
) -> None:
    log = f"world_size={world}\n" + "".join(desynced(rank, number) for rank, number in reporters.items())
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == guilty
