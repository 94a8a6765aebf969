"""Dumps of every version, and dumps that lie."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.model.collectives import GroupStatus, ProcessGroup, Recording
from ncclprobe.model.errors import ParseError
from ncclprobe.model.frames import Frame
from ncclprobe.parse.flight_recorder import parse
from tests.dumps import START_NS, STEP_NS, VERSIONS, WORLD, Call, Group, as_json, call, document, dump, frame
from tests.torch_pickle import torch_pickle

DATA = Path(__file__).parents[2] / "data" / "flight_recorder"
CORPUS = Path(__file__).parents[4] / "shared" / "corpus" / "megatron-moe"
JSON_VERSIONS = ("2.4", "2.9", "2.10")

STEP = frame("train_step", line=12)
MAIN = frame("<module>", line=40)
CALLS = [
    call("all_reduce", sizes=[[4, 8]], frames=[STEP, MAIN]),
    call("broadcast", sizes=[[16]], dtypes=["BFloat16"], frames=[MAIN]),
    call("all_reduce", sizes=[[4, 8]], frames=[STEP, MAIN]),
]


def read(data: bytes) -> Recording:
    """The recording of a dump without any fault."""
    parsed = parse(data)
    assert parsed.problems == ()
    (recording,) = parsed.records
    return recording


def damaged(change: dict[str, Any], at: int = 1) -> bytes:
    """A dump of CALLS, with keys of one entry replaced."""
    made = document(CALLS)
    made["entries"][at] |= change
    return torch_pickle(made)


@pytest.mark.parametrize("version", VERSIONS)
def test_calls_of_every_version(version: str) -> None:
    recording = read(dump(CALLS, version=version, completed_upto=2))
    calls = list(recording.calls())
    assert [one.signature.op for one in calls] == ["all_reduce", "broadcast", "all_reduce"]
    assert [one.seq for one in calls] == [1, 2, 3]
    assert [one.is_completed for one in calls] == [True, True, False]
    assert [one.is_p2p for one in calls] == [False] * 3
    assert [one.created_ns for one in calls] == [START_NS + number * STEP_NS for number in range(3)]
    assert [one.signature.input_sizes for one in calls] == [((4, 8),), ((16,),), ((4, 8),)]
    assert calls[0].stack == (
        Frame("train_step", "/home/user/train.py", 12),
        Frame("<module>", "/home/user/train.py", 40),
    )
    assert calls[0].group.name == "0"
    assert recording.backends == ("nccl",)
    assert recording.group_of_id == {"0": 0}
    assert recording.is_whole


@pytest.mark.parametrize("version", JSON_VERSIONS)
def test_json_says_the_same_but_for_frames(version: str) -> None:
    pickled, from_json = (
        read(dump(CALLS, version=version, form=form, completed_upto=2)) for form in ("pickle", "json")
    )
    assert from_json.stacks == ((),)
    for field in ("version", "groups", "signatures", "statuses", "seq", "is_completed", "created_ns", "timeout_ms"):
        assert getattr(from_json, field) == getattr(pickled, field)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_each_version_knows_of_groups(version: str) -> None:
    (group,) = read(dump(CALLS, version=version)).groups
    assert group.ranks == (() if version == "2.2" else (0, 1, 2, 3))
    assert group.description == ("" if version in ("2.2", "1.4") else "default_pg")


def test_versions_and_library() -> None:
    known = {version: read(dump(CALLS, version=version)) for version in VERSIONS}
    assert [recording.library_version for recording in known.values()] == [None] * 4 + ["2.27.5"] * 2
    assert known["2.2"].version == "1.0 (torch 2.2)"
    assert known["2.10"].version == "2.10"
    assert [known[version].timeout_ms[0] for version in ("2.2", "1.4", "2.1", "2.4")] == [-1, -1, -1, 600_000]


@pytest.mark.parametrize("version", ["2.11", "3.0"])
def test_a_newer_version_is_read_with_a_warning(version: str) -> None:
    parsed = parse(torch_pickle(document(CALLS) | {"version": version}))
    assert len(parsed.records[0]) == 3
    assert parsed.problems == (f"version {version} of the dump is newer than this ncclprobe knows; read as 2.10",)


def test_counters_of_groups() -> None:
    pairs = Group(name="7", description="tp", ranks=(0, 1), pg_id=2)
    calls = [*CALLS, call("all_reduce", group=pairs)]
    for form in ("pickle", "json"):
        recording = read(dump(calls, form=form, groups=[WORLD, pairs], completed_upto=2))
        assert recording.statuses == {
            "0": GroupStatus(last_enqueued=3, last_started=None, last_completed=2),
            "2": GroupStatus(last_enqueued=1, last_started=None, last_completed=1),
        }
        assert recording.group_of_id == {"0": 0, "2": 1}


def test_sequence_number_0_and_counter_0_are_real() -> None:
    recording = read(dump([call("all_reduce", seq=0)], status={"0": (0, 0, 0)}))
    assert list(recording.seq) == [0]
    assert recording.statuses["0"] == GroupStatus(last_enqueued=0, last_started=0, last_completed=0)


def test_groups_without_calls_are_kept() -> None:
    idle = Group(name="9", description="dp", ranks=(1, 3), pg_id=4)
    recording = read(dump(CALLS, groups=[idle, WORLD]))
    assert recording.groups == (
        ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2, 3)),
        ProcessGroup(name="9", description="dp", ranks=(1, 3)),
    )


def test_a_group_may_be_missing_from_pg_config() -> None:
    hidden = Group(name="5", description="ep", ranks=(0, 2), pg_id=5)
    recording = read(dump([call("all_to_all", group=hidden)]))
    assert recording.call(0).group == ProcessGroup(name="5", description="ep")


def test_point_to_point_calls_have_their_own_numbers() -> None:
    calls = [call("all_reduce"), call("send 0->1"), call("recv 0<-1"), call("all_reduce")]
    assert list(read(dump(calls)).seq) == [1, 1, 2, 2]
    assert list(read(dump(calls, version="1.4")).seq) == [1, 2, 3, 4]
    for version in VERSIONS:
        assert list(read(dump(calls, version=version)).is_p2p) == [False, True, True, False]


def test_equal_stacks_and_signatures_are_kept_once() -> None:
    apart = [call("all_reduce", frames=[dict(STEP)]) for _ in range(5)]
    for data in (dump(apart), pickle.dumps(document(apart), 2)):
        recording = read(data)
        assert len(recording.stacks) == len(recording.signatures) == 1
        assert list(recording.stack_of) == [0] * 5


def test_stacks_that_share_frames_stay_apart() -> None:
    stacks = [[STEP, MAIN], [MAIN, STEP], [STEP], []]
    recording = read(dump([call("all_reduce", frames=frames) for frames in stacks]))
    assert [[one.line for one in made.stack] for made in recording.calls()] == [[12, 40], [40, 12], [12], []]


@pytest.mark.parametrize(
    ("backend", "state", "retired", "is_completed"),
    [
        ("nccl", "completed", True, True),
        ("nccl", "completed", False, True),
        ("nccl", "scheduled", False, False),
        ("nccl", "started", False, False),
        ("nccl", "scheduled", True, False),  # timed out: the watchdog gave it up
        ("xccl", "scheduled", True, False),
        ("gloo", "scheduled", True, True),
        ("gloo", "scheduled", False, False),
        ("nccl2", "scheduled", True, True),
        ("mybackend", "scheduled", True, True),
    ],
)
def test_what_counts_as_completed(backend: str, state: str, retired: bool, is_completed: bool) -> None:
    data = dump([call("all_reduce", state=state, retired=retired)], backend=backend)
    assert list(read(data).is_completed) == [is_completed]


def test_a_name_without_a_backend() -> None:
    recording = read(damaged({"profiling_name": "all_reduce"}))
    assert recording.call(1).signature.op == "all_reduce"
    assert recording.backends == ("nccl", "")


def test_gloo_names_its_group_only_in_its_entries() -> None:
    recording = read(dump(CALLS, backend="gloo", completed_upto=2))
    assert recording.groups == (ProcessGroup(name="0", description="default_pg"),)
    assert list(recording.is_completed) == [True, True, False]


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_real_gloo_dump(form: str) -> None:
    recording = read((DATA / f"torch_2.13_gloo_rank0.{form}").read_bytes())
    ops = [one.signature.op for one in recording.calls()]
    step = ["all_reduce", "broadcast"]
    assert ops == [*step, *step, "barrier", "all_reduce", *["all_gather"] * 3, "all_reduce"]
    assert list(recording.seq) == [1, 2, 3, 4, 5, 1, 6, 7, 8, 9]
    assert list(recording.is_completed) == [True] * 9 + [False]
    assert recording.groups == (
        ProcessGroup(name="0", description="default_pg"),
        ProcessGroup(name="1", description="undefined"),
    )
    assert recording.statuses["0"].last_enqueued == 10


def test_the_builder_writes_what_torch_writes() -> None:
    data = (DATA / "torch_2.13_gloo_rank0.pickle").read_bytes()
    assert torch_pickle(pickle.loads(data)) == data
    real = pickle.loads(data)
    made = document([call("all_reduce", frames=[STEP])], backend="gloo")
    assert made.keys() == real.keys()
    assert made["entries"][0].keys() == real["entries"][0].keys()
    json_real = json.loads((DATA / "torch_2.13_gloo_rank0.json").read_bytes())
    json_made = as_json(made)
    assert json_made.keys() == json_real.keys()
    assert json_made["entries"][0].keys() == json_real["entries"][0].keys()


@pytest.mark.parametrize("form", ["pickle", "json"])
def test_a_recorder_without_calls(form: str) -> None:
    recording = read(dump([], form=form))
    assert len(recording) == 0
    assert recording.is_whole
    assert recording.groups == (ProcessGroup(name="0", description="default_pg", ranks=(0, 1, 2, 3)),)


def test_an_empty_list_of_torch_2_2() -> None:
    assert len(read(dump([], version="2.2"))) == 0


def test_a_dump_without_entries_is_not_taken_as_empty() -> None:
    made = document(CALLS)
    del made["entries"]
    parsed = parse(torch_pickle(made))
    assert not parsed.records[0].is_whole
    assert parsed.problems == ("it was written without its entries: only the counters of each group are known",)
    assert parsed.records[0].statuses["0"].last_enqueued == 3


# --- damage ---

WRONG = [None, True, 7, -1.5, "text", [], {}, (), [[]], {"a": []}, 1 << 62, -(1 << 62), float("nan"), [None] * 3]
KEYS = [
    "frames", "pg_id", "process_group", "collective_seq_id", "p2p_seq_id", "profiling_name", "time_created_ns",
    "input_sizes", "output_sizes", "input_dtypes", "state", "retired", "timeout_ms", "is_p2p", "record_id",
]  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_a_wrong_type_anywhere_costs_at_most_its_entry(key: str) -> None:
    for wrong in WRONG:
        made = document(CALLS)
        made["entries"][1][key] = wrong
        (recording,) = parse(pickle.dumps(made, 2)).records
        assert len(recording) in (2, 3)
        assert len(list(recording.calls())) == len(recording)


@pytest.mark.parametrize("key", ["version", "pg_config", "pg_status", "comm_lib_version"])
def test_a_wrong_type_at_the_top_costs_only_itself(key: str) -> None:
    for wrong in WRONG:
        assert len(parse(pickle.dumps(document(CALLS) | {key: wrong}, 2)).records[0]) == 3


def test_damaged_entries_are_counted_and_left_out() -> None:
    parsed = parse(damaged({"collective_seq_id": "two"}))
    assert list(parsed.records[0].seq) == [1, 3]
    assert not parsed.records[0].is_whole
    assert parsed.problems == ("1 of its 3 entries are damaged and were left out",)


def test_nothing_but_damage_is_no_empty_recorder() -> None:
    made = document(CALLS)
    made["entries"] = [{"profiling_name": 1}, 5, None]
    with pytest.raises(ParseError, match="none of its 3 entries"):
        parse(torch_pickle(made))


def test_repeated_entries_count_once() -> None:
    made = document(CALLS)
    made["entries"] += made["entries"][:2]
    parsed = parse(torch_pickle(made))
    assert list(parsed.records[0].seq) == [1, 2, 3]
    assert parsed.problems == ("2 of its 5 entries repeat an earlier one and were left out",)


def test_calls_of_one_coalesced_block_are_no_repetition() -> None:
    assert list(read(dump([call("all_reduce", seq=4), call("all_reduce", seq=4)])).seq) == [4, 4]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b" ", "damaged"),
        (b"{}", "none of its keys"),
        (b"[1, 2]", "none of its 2 entries"),
        (b'{"entries": 3}', "no list"),
        (b'{"entries": [', "cut off"),
        (b"[" * 100_000, "damaged"),
        (b'{"version": ' + b"9" * 10_000 + b"}", "damaged"),
        (pickle.dumps({"x": 1}, 2), "none of its keys"),
        (pickle.dumps(3, 2), "none of its keys"),
        (b"plain text", "not a pickle"),
    ],
)
def test_what_is_no_dump_says_so(data: bytes, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(data)


@pytest.mark.parametrize(
    "ranks", ["[0, 1", "0, 1", "[-1]", "[0; 1]", "[12345678901]", "__import__('os')", 5, [0, "1"], None, {"a": 1}]
)
def test_a_group_whose_ranks_make_no_sense_has_none(ranks: object) -> None:
    made = document(CALLS)
    made["pg_config"]["0"]["ranks"] = ranks
    parsed = parse(torch_pickle(made) if not isinstance(ranks, dict) else pickle.dumps(made, 2))
    assert parsed.records[0].groups[0].ranks == ()
    assert parsed.problems == ("1 process groups in pg_config are damaged and were left out",)


def test_ranks_are_sorted_and_once() -> None:
    made = document(CALLS)
    made["pg_config"]["0"]["ranks"] = "[3,1, 1,  0]"
    assert read(torch_pickle(made)).groups[0].ranks == (0, 1, 3)


@pytest.mark.parametrize("value", [None, "x", 1.5, "1" * 30, [1], {"a": 2}])
def test_a_damaged_counter_costs_its_group_only(value: object) -> None:
    other = Group(name="7", ranks=(0, 1), pg_id=2)
    made = document([*CALLS, call("all_reduce", group=other)], groups=[WORLD, other])
    made["pg_status"]["0"]["last_completed_collective"] = value
    parsed = parse(pickle.dumps(made, 2))
    assert list(parsed.records[0].statuses) == ["2"]
    assert parsed.problems == ("the counters of 1 process groups in pg_status are damaged and were left out",)


@pytest.mark.parametrize("seq", [(1 << 62) - 1, 1 << 40])
def test_huge_numbers_are_numbers(seq: int) -> None:
    assert list(read(dump([call("all_reduce", seq=seq)])).seq) == [seq]


def test_more_groups_than_a_column_holds() -> None:
    made = document(CALLS)
    made["pg_config"] = {str(number): {"desc": "", "ranks": "[0]"} for number in range(70_000)}
    parsed = parse(torch_pickle(made))
    assert len(parsed.records[0].groups) <= 1 << 16
    assert len(parsed.records[0]) == 3


def test_text_that_could_drive_a_terminal_is_made_harmless() -> None:
    evil = frame("f\x1b[2J", "/tmp/\ud800\u202e.py", 3)
    recording = read(pickle.dumps(document([call("all_reduce\x07", frames=[evil])]), 2))
    assert recording.call(0).signature.op == "all_reduce\ufffd"
    assert recording.call(0).stack == (Frame("f\ufffd[2J", "/tmp/\ufffd\ufffd.py", 3),)


def test_shared_nested_lists_are_not_walked() -> None:
    laugh: Any = ["ha"]
    for _ in range(200):
        laugh = [laugh, laugh]
    parsed = parse(pickle.dumps(document(CALLS) | {"extra": laugh}, 2))
    assert len(parsed.records[0]) == 3
    made = document(CALLS)
    made["entries"][1]["input_sizes"] = laugh
    made["entries"][2]["process_group"] = laugh
    made["pg_config"]["0"]["ranks"] = laugh
    assert len(parse(pickle.dumps(made, 2)).records[0]) == 1


def test_a_list_in_a_circle_is_damage() -> None:
    circle: list[Any] = []
    circle.append(circle)
    made = document(CALLS)
    made["entries"][1]["input_sizes"] = circle
    assert len(parse(pickle.dumps(made, 2)).records[0]) == 2


def test_the_damage_of_one_entry_does_not_pass_to_others_of_its_kind() -> None:
    for key, wrong in (("collective_seq_id", None), ("input_sizes", [[True, 8]]), ("input_sizes", [[4.0, 8]])):
        for at in (0, 2):
            made = document([CALLS[0]] * 4)
            made["entries"][at][key] = wrong
            recording = parse(pickle.dumps(made, 2)).records[0]
            assert list(recording.seq) == [seq for seq in (1, 2, 3, 4) if seq != at + 1]
    made = document([CALLS[0]] * 4)
    del made["entries"][0]["timeout_ms"], made["entries"][0]["pg_id"]
    recording = read(pickle.dumps(made, 2))
    assert list(recording.timeout_ms) == [-1, 600_000, 600_000, 600_000]
    assert recording.group_of_id == {"0": 0}
    assert len(recording.signatures) == 1


def test_what_only_damaged_entries_tell_is_not_told() -> None:
    made = document(CALLS)
    made["entries"][1] |= {"profiling_name": "gloo:all_reduce", "pg_id": 9, "time_created_ns": "now"}
    recording = parse(pickle.dumps(made, 2)).records[0]
    assert recording.backends == ("nccl",)
    assert recording.group_of_id == {"0": 0}


def test_a_group_number_that_is_none_is_not_printed() -> None:
    laugh: Any = ["ha"]
    for _ in range(200):
        laugh = [laugh, laugh]
    for wrong in (laugh, None, True, {}):
        made = document(CALLS)
        made["entries"][0]["pg_id"] = wrong
        assert read(pickle.dumps(made, 2)).group_of_id == {"0": 0}


def test_groups_whose_names_look_the_same_when_shown_are_one() -> None:
    made = document(CALLS)
    for entry, name in zip(made["entries"], ("a\x07", "a\x08", "a\x07"), strict=True):
        entry["process_group"] = (name, "x")
    calls = list(parse(pickle.dumps(made, 2)).records[0].calls())
    assert {one.group.name for one in calls} == {"a\ufffd"}


# --- real dumps of NCCL jobs ---


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus of real NCCL dumps is not beside the repository")
@pytest.mark.parametrize("hang", ["hang-a", "hang-b"])
def test_real_nccl_dumps(hang: str) -> None:
    for rank in range(16):
        recording = read((CORPUS / hang / f"_dump_{rank}").read_bytes())
        assert recording.version == "2.9"
        assert recording.library_version == "2.27.3"
        assert rank in recording.groups[0].ranks
        assert not any(recording.is_completed)
        world = next(group for group in recording.groups if group.label == "default_pg")
        assert world.ranks == tuple(range(16))
        assert (
            torch_pickle(pickle.loads((CORPUS / hang / f"_dump_{rank}").read_bytes()))
            == (CORPUS / hang / f"_dump_{rank}").read_bytes()
        )


def test_calls_know_how_they_are_made() -> None:
    """What tests of other packages lean on: the builder's own arithmetic."""
    one: Call = call("all_gather", sizes=[[2]], output_sizes=[[2], [2]])
    recording = read(dump([one, one], completed_upto=1))
    assert recording.call(0).signature.output_sizes == ((2,), (2,))
    assert [made.is_completed for made in recording.calls()] == [True, False]
