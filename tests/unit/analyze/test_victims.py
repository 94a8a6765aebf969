"""Who waits for whom in each group, and how that leads to the named ranks."""

from collections.abc import Iterable, Mapping

from ncclprobe.analyze.case import build_case
from ncclprobe.analyze.verdict import analyze
from ncclprobe.analyze.victims import find_waiting
from ncclprobe.model.collectives import Recording
from ncclprobe.model.report import GroupWait
from tests.evidence import dumps, evidence, mixed, recording

TP_A, TP_B, DP = ("tp_a", (0, 1)), ("tp_b", (2, 3)), ("dp", (0, 2))
CHAIN = {
    0: mixed((*DP, "all_reduce", 7)),
    1: mixed((*TP_A, "all_gather", 4)),
    2: mixed((*TP_B, "all_gather", 4)),
    3: mixed((*TP_B, "all_gather", 3, True)),
}


def waits(recordings: Mapping[int, Recording], named: Iterable[int]) -> dict[str, list[tuple[object, ...]]]:
    found = find_waiting(build_case(evidence(recordings=dumps(recordings))), named)
    return {group.name: [_row(wait) for wait in found.of(group)] for group in found.groups}


def _row(wait: GroupWait) -> tuple[object, ...]:
    return wait.ranks, wait.waits_for, wait.op, wait.seq, wait.hops


def test_victims_of_victims_are_a_hop_further() -> None:
    assert waits(CHAIN, [3]) == {
        "dp": [("0", "2", "all_reduce", 7, 2)],
        "tp_a": [("1", "0", "all_gather", 4, 3)],
        "tp_b": [("2", "3", "all_gather", 4, 1)],
    }


def test_the_verdict_counts_victims_in_all_groups() -> None:
    report = analyze(evidence(recordings=dumps(CHAIN)))
    assert (report.verdict.guilty_ranks, report.verdict.victims) == ((3,), "0-2")
    assert {group.name: [wait.hops for wait in group.waits] for group in report.groups} == {
        "dp": [2],
        "tp_a": [3],
        "tp_b": [1],
    }


def test_a_wait_that_leads_elsewhere_has_no_hops() -> None:
    assert waits(CHAIN, [1])["tp_b"] == [("2", "3", "all_gather", 4, None)]
    assert waits(CHAIN, [])["dp"] == [("0", "2", "all_reduce", 7, None)]


def test_messages_lead_along_the_pipeline_and_have_no_number() -> None:
    pp = ("pp", (0, 1, 2))
    pipeline = {
        0: mixed((*pp, "send 0->1", 1, True)),
        1: mixed((*pp, "recv 1<-0", 2)),
        2: mixed((*pp, "recv 2<-1", 2)),
    }
    assert waits(pipeline, [0]) == {"pp": [("1", "0", "recv 1<-0", None, 1), ("2", "1", "recv 2<-1", None, 2)]}
    groups = analyze(evidence(recordings=dumps(pipeline))).groups
    assert [(group.name, group.ranks, group.last_seq) for group in groups] == [("pp", "0-2", None)]


def test_those_in_a_ring_wait_for_one_another_and_come_apart_from_their_victims() -> None:
    a, b = ("a", (0, 1, 2), "all_reduce", 1), ("b", (0, 1), "all_reduce", 1)
    assert waits({0: mixed(a), 1: mixed(b), 2: mixed(a)}, [0, 1]) == {
        "a": [("0", "1", "all_reduce", 1, 1), ("2", "1", "all_reduce", 1, 1)],
        "b": [("1", "0", "all_reduce", 1, 1)],
    }


def test_what_a_named_rank_itself_waits_in_does_not_make_it_a_victim() -> None:
    lost = {0: mixed(("a", (0, 1), "all_reduce", 1)), 1: mixed(("b", (1, 2), "all_reduce", 1)), 2: recording([])}
    assert waits(lost, [1])["b"] == [("1", "2", "all_reduce", 1, None)]


def test_at_a_divergence_all_have_issued_a_call_and_the_others_wait_for_the_odd_one() -> None:
    step = ["all_reduce:64"]
    odd = {0: recording(step * 9 + ["all_gather:1"]), **{rank: recording(step * 10) for rank in (1, 2, 3)}}
    assert waits(odd, [0]) == {
        "0": [("1-3", "0", "all_reduce", 10, 1), ("0", "", "all_gather", 10, None)],
    }


def test_a_rank_that_lags_waits_for_nobody() -> None:
    ahead, lagging = recording(["a"] * 6, completed=5), recording(["a"] * 5, completed=3)
    found = waits({0: ahead, 1: lagging, 2: ahead}, [1])
    assert found == {"0": [("0,2", "1", "a", 6, 1), ("1", "", "a", 4, None)]}


def test_a_named_rank_without_a_dump_is_waited_for_where_it_is_a_member() -> None:
    heard = {rank: recording(["a"] * 5, ranks=range(3)) for rank in (0, 1)}
    assert waits(heard, [2]) == {"0": [("0-1", "2", "a", 5, 1)]}
    assert waits(heard, []) == {"0": [("0-1", "", "a", 5, None)]}


def test_dumps_of_several_moments_show_no_waits_for_anybody() -> None:
    moved = {0: recording(["a"] * 9), 1: recording(["a"] * 5), 2: recording(["a"] * 9)}
    assert waits(moved, [1]) == {"0": [("0,2", "", "a", 9, None), ("1", "", "a", 5, None)]}
