"""A line per group that somebody waits in; equal groups are one line."""

from collections.abc import Iterable
from dataclasses import replace

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.report import GroupState, GroupWait, Report
from ncclprobe.report.wait_lines import fold_waits
from tests.evidence import evidence


def group(name: str, description: str, ranks: str, *waits: GroupWait) -> GroupState:
    return GroupState(name=name, description=description, ranks=ranks, behind="", last_seq=None, waits=waits)


def wait(ranks: str, waits_for: str, hops: int | None = 1, op: str = "all_reduce", seq: int | None = 118) -> GroupWait:
    return GroupWait(ranks=ranks, waits_for=waits_for, op=op, seq=seq, hops=hops)


def lines(*groups: GroupState, guilty: Iterable[int] = (2,)) -> list[str]:
    return [str(line) for line in fold_waits(_report(groups, tuple(guilty)))]


def _report(groups: tuple[GroupState, ...], guilty: tuple[int, ...]) -> Report:
    report = analyze(evidence(hosts=()))
    return replace(report, groups=groups, verdict=replace(report.verdict, guilty_ranks=guilty))


def test_direct_victims_come_before_those_behind_them() -> None:
    assert lines(group("9", "dp", "1,5", wait("5", "1", 2)), group("5", "tp", "0-3", wait("0-1,3", "2"))) == [
        "tp: ranks 0-1,3 wait for rank 2 in all_reduce, call 118",
        "dp: rank 5 waits for rank 1, itself waiting, in all_reduce, call 118",
    ]


def test_groups_that_wait_alike_are_one_line() -> None:
    alike = [group(str(n), f"dp_{n}", f"{n},{n + 4}", wait(str(n + 4), str(n), 2)) for n in range(3)]
    assert lines(*alike) == ["3 groups dp_*: ranks 4-6 wait for ranks 0-2, themselves waiting, in all_reduce, call 118"]
    same = [group(str(n), "DATA", f"{n},{n + 4}", wait(str(n + 4), str(n), 2, seq=n)) for n in range(2)]
    assert lines(*same) == ["2 groups DATA: ranks 4-5 wait for ranks 0-1, themselves waiting, in all_reduce"]


def test_groups_without_a_description_go_by_name_or_number() -> None:
    first, second = group("7", "undefined", "0,2", wait("0", "2")), group("8", "", "1,2", wait("1", "2"))
    assert lines(first) == ["group 7: rank 0 waits for rank 2 in all_reduce, call 118"]
    assert lines(first, second)[0].startswith("2 groups without a description: ranks 0-1 wait for rank 2")


def test_messages_of_a_pipeline_are_one_line_for_the_named_and_one_behind() -> None:
    stages = [wait(str(n + 1), str(n), n + 1, f"recv {n + 1}<-{n}", None) for n in range(3)]
    assert lines(group("3", "PIPELINE", "0-3", *stages), guilty=[0]) == [
        "PIPELINE: rank 1 waits for rank 0 in recv",
        "PIPELINE: ranks 2-3 wait for ranks 1-2, themselves waiting, in recv",
    ]


def test_the_ring_of_the_named_comes_before_its_victims() -> None:
    a = group("1", "a", "0-2", wait("2", "1"), wait("0", "1"))
    b = group("2", "b", "0-1", wait("1", "0"))
    assert [line.partition(" wait")[0] for line in lines(a, b, guilty=[0, 1])] == [
        "a: rank 0",
        "b: rank 1",
        "a: rank 2",
    ]


def test_what_does_not_lead_to_a_named_rank_is_left_out() -> None:
    assert lines(group("1", "a", "0-2", wait("0", "1", None), wait("1", "", None))) == []


def test_of_all_who_hold_up_a_call_only_the_named_are_shown() -> None:
    assert lines(group("1", "a", "0-5", wait("0", "1-3"))) == ["a: rank 0 waits for rank 2 in all_reduce, call 118"]


def test_a_name_that_is_a_hash_is_cut() -> None:
    assert len(lines(group("f" * 500, "", "0,2", wait("0", "2")))[0]) < 140
