"""Dumps as each release of torch writes them."""

import json
import pickle
import pickletools
from typing import Any

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.parse import flight_recorder
from ncclprobe.simulate.simulation import set_up_tape, taken_ns
from ncclprobe.simulate.versions import VERSIONS
from tests.unit.simulate.simulated import documents_of, dumps_of, plan, recordings_of, runs_of

# What torch's C++ pickler ever writes into a dump.
TORCH_CODES = {
    *("PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "BINUNICODE"),
    *("BININT", "BININT1", "BININT2", "LONG1", "NONE", "NEWTRUE", "NEWFALSE", "TUPLE2", "APPENDS", "SETITEMS", "STOP"),
}
NEWEST_KEYS = [
    *("frames", "record_id", "pg_id", "process_group", "thread_name", "thread_id", "collective_seq_id", "p2p_seq_id"),
    *("op_id", "profiling_name", "time_created_ns", "input_sizes", "input_dtypes", "output_sizes", "output_dtypes"),
    *("state", "time_discovered_started_ns", "time_discovered_completed_ns", "retired", "timeout_ms", "is_p2p"),
]
TOP_KEYS = {
    "1.4": ["version", "pg_config", "entries"],
    "2.1": ["version", "pg_config", "entries"],
    "2.4": ["version", "pg_config", "pg_status", "entries"],
    "2.9": ["version", "pg_config", "nccl_version", "pg_status", "entries"],
    "2.10": ["version", "pg_config", "comm_lib_version", "pg_status", "entries"],
}


def entries_of(document: Any) -> list[dict[str, Any]]:
    return document if isinstance(document, list) else document["entries"]


@pytest.mark.parametrize("job", ["ddp", "megatron"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_read_without_a_problem(version: str, job: str) -> None:
    recordings = recordings_of(plan("stuck-in-python/mid-step", 8, job=job, version=version))
    assert len(recordings) == 8
    assert all(len(recording) > 50 for recording in recordings.values())
    written = {recording.version for recording in recordings.values()}
    assert written == ({version} if version != "list" else {"1.0 (torch 2.2)"})


def test_the_newest_version_key_by_key() -> None:
    document = documents_of(plan("stuck-in-python/mid-step", 8, job="megatron"))[3]
    assert list(document) == TOP_KEYS["2.10"]
    assert document["version"] == "2.10"
    assert all(list(entry) == NEWEST_KEYS for entry in document["entries"])
    entry = document["entries"][0]
    assert (entry["process_group"][1], entry["profiling_name"]) == ("TENSOR_MODEL_PARALLEL_GROUP", "nccl:broadcast")
    assert entry["frames"][0]["name"] == "broadcast"
    assert {frame["filename"] for frame in entry["frames"]} >= {"/workspace/train.py"}


@pytest.mark.parametrize("version", TOP_KEYS)
def test_the_keys_of_older_versions(version: str) -> None:
    document = documents_of(plan("stuck-in-python/mid-step", 8, job="megatron", version=version))[3]
    assert list(document) == TOP_KEYS[version]
    keys = set(document["entries"][0])
    assert ("thread_name" in keys) is (version in ("2.9", "2.10"))
    assert ("timeout_ms" in keys) is (version in ("2.4", "2.9", "2.10"))
    assert ("process_group" in keys, "input_dtypes" in keys, "is_p2p" in keys) == (version != "1.4",) * 3
    assert ("seq_id" in keys) is (version == "1.4")
    groups = document["pg_config"]
    if version == "1.4":
        assert groups[0] == list(range(8))
    else:
        assert groups["0"] == {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2, 3, 4, 5, 6, 7]"}


def test_torch_2_2_wrote_a_bare_list_in_microseconds() -> None:
    document = documents_of(plan("stuck-in-python/mid-step", 2, job="ddp", version="list"))[0]
    assert isinstance(document, list)
    assert list(document[0])[:2] == ["pg_id", "seq_id"]
    assert 1_700_000_000_000_000 < document[0]["time_created_us"] < 1_900_000_000_000_000


@pytest.mark.parametrize("version", VERSIONS)
def test_pickles_hold_data_in_torchs_codes_only(version: str) -> None:
    for data in dumps_of(plan("progressing/logging", 4, job="moe", version=version)).values():
        assert {code.name for code, _, _ in pickletools.genops(data)} <= TORCH_CODES


def test_json_has_no_frames_and_counters_as_text() -> None:
    data = dumps_of(plan("stuck-in-python/mid-step", 8, job="megatron", is_json=True))[3]
    document = json.loads(data)
    assert list(document) == sorted(document)
    assert set(document) == {*TOP_KEYS["2.10"], "nccl_comm_state"}
    assert set(document["entries"][0]) == {*NEWEST_KEYS} - {"frames"}
    assert {entry["time_discovered_started_ns"] for entry in document["entries"]} == {0}
    assert all(type(value) is str for status in document["pg_status"].values() for value in status.values())
    parsed = flight_recorder.parse(data)
    assert parsed.problems == ()


def test_json_leaves_out_an_empty_list_of_entries_and_pickle_does_not() -> None:
    name = "stuck-in-python/data-loader"
    made = plan(name, 4, seed=1, job="ddp", is_active_only=True)
    stuck = made.planted.guilty[0]
    assert documents_of(made)[stuck]["entries"] == []
    assert "entries" not in json.loads(
        dumps_of(plan(name, 4, seed=1, job="ddp", is_active_only=True, is_json=True))[stuck]
    )


def test_versions_before_2_4_have_no_json() -> None:
    with pytest.raises(UsageError, match="JSON"):
        plan("stuck-in-python/mid-step", 4, version="2.1", is_json=True)
    with pytest.raises(UsageError, match=r"'3\.0'"):
        plan("stuck-in-python/mid-step", 4, version="3.0")


def test_parts_of_a_batch_stay_scheduled_and_only_its_end_tells() -> None:
    document = documents_of(plan("stuck-in-python/mid-step", 8, job="megatron"))[0]
    pipeline = [entry for entry in document["entries"] if entry["is_p2p"]]
    parts = [entry for entry in pipeline if entry["profiling_name"] != "nccl:coalesced"]
    ends = [entry for entry in pipeline if entry["profiling_name"] == "nccl:coalesced"]
    assert {entry["state"] for entry in parts} == {"scheduled"}
    assert "completed" in {entry["state"] for entry in ends}
    assert {entry["p2p_seq_id"] for entry in parts} == {entry["p2p_seq_id"] for entry in ends}
    assert {entry["profiling_name"] for entry in parts} == {"nccl:send 0->1", "nccl:recv 0<-1"}
    assert {tuple(entry["input_sizes"]) for entry in ends} == {()}


def test_counters_go_on_from_thousands_of_steps_and_agree_between_members() -> None:
    recordings = documents_of(plan("progressing/skewed", 8, job="megatron", skew_s=0.0))
    started = set()
    for document in recordings.values():
        records = [entry["record_id"] for entry in document["entries"]]
        assert records == list(range(records[0], records[0] + len(records)))
        started.update(
            (entry["process_group"], entry["collective_seq_id"])
            for entry in document["entries"][:1]
            if not entry["is_p2p"]
        )
    assert all(seq > 1000 for _, seq in started)
    for entry in recordings[0]["entries"]:
        is_in_step = entry["op_id"] >= entry["collective_seq_id"]
        assert is_in_step


def test_started_is_never_known_and_status_holds_the_last_calls() -> None:
    made = plan("stuck-in-python/mid-step", 8, job="megatron")
    for document in documents_of(made).values():
        assert {status["last_started_collective"] for status in document["pg_status"].values()} == {-1}
        last = {}
        for entry in document["entries"]:
            is_work = entry["profiling_name"] == "nccl:coalesced" or not entry["is_p2p"]
            if is_work:
                last[str(entry["pg_id"])] = entry["p2p_seq_id" if entry["is_p2p"] else "collective_seq_id"]
        for pg_id, seq in last.items():
            assert document["pg_status"][pg_id]["last_enqueued_collective"] == seq


def test_a_ring_holds_two_thousand_entries() -> None:
    made = plan("stuck-in-python/mid-step", 4, job="moe", steps=200)
    assert {len(document["entries"]) for document in documents_of(made).values()} == {2000}
    assert {len(document["entries"]) < 100 for document in documents_of(plan("stuck-in-python", 4, steps=0)).values()}


def test_a_small_ring_has_lost_the_oldest_outstanding_call_of_who_ran_ahead() -> None:
    whole = documents_of(plan("stuck-in-python/data-loader", 8, seed=3, job="megatron"))
    wrapped = documents_of(plan("stuck-in-python/data-loader", 8, seed=3, job="megatron", has_wrapped=True))
    lost = 0
    for rank, document in wrapped.items():
        assert document["entries"] == whole[rank]["entries"][-len(document["entries"]) :]
        assert document["pg_status"] == whole[rank]["pg_status"]
        lost += all(entry["state"] == "scheduled" for entry in document["entries"])
    assert lost


def test_without_frames_there_is_no_key() -> None:
    document = documents_of(plan("stuck-in-python/mid-step", 2, has_frames=False))[0]
    assert {"frames" in entry for entry in document["entries"]} == {False}


def test_dumps_of_a_running_job_are_taken_within_the_skew() -> None:
    made = plan("progressing/skewed", 16, job="ddp", skew_s=2.0)
    tape = set_up_tape(made, runs_of(made))
    moments = [taken_ns(made, tape, rank) for rank in range(16)]
    assert 500_000_000 < max(moments) - min(moments) < 2_010_000_000
    for rank, document in documents_of(made).items():
        newest = max(entry["time_created_ns"] for entry in document["entries"])
        assert 0 <= moments[rank] - newest < 1_000_000_000


def test_a_hang_is_dumped_when_its_calls_have_timed_out() -> None:
    made = plan("stuck-in-python/mid-step", 4, job="ddp")
    tape = set_up_tape(made, runs_of(made))
    for rank, document in documents_of(made).items():
        waiting = [entry for entry in document["entries"] if entry["state"] == "scheduled"]
        ages_ms = [(taken_ns(made, tape, rank) - entry["time_created_ns"]) / 1e6 for entry in waiting]
        assert all(age_ms >= entry["timeout_ms"] for age_ms, entry in zip(ages_ms, waiting, strict=True))


def test_uneven_all_to_alls_move_as_many_rows_out_as_in() -> None:
    documents = documents_of(plan("progressing/skewed", 8, job="moe"))
    rows: dict[object, list[tuple[int, int]]] = {}
    for document in documents.values():
        for entry in document["entries"]:
            if entry["profiling_name"] == "nccl:all_to_all" and entry["state"] == "completed":
                key = entry["process_group"], entry["collective_seq_id"]
                rows.setdefault(key, []).append((entry["input_sizes"][0][0], entry["output_sizes"][0][0]))
    whole = [sizes for sizes in rows.values() if len(sizes) == 4]
    assert len(whole) > 20
    assert all(sum(out for _, out in sizes) == sum(given for given, _ in sizes) for sizes in whole)
    assert any(len({out for _, out in sizes}) > 1 for sizes in whole)


def test_a_gather_has_outputs_on_its_root_alone() -> None:
    documents = documents_of(plan("stuck-in-python/data-loader", 4, job="ddp"))
    for rank, document in documents.items():
        gathers = [entry for entry in document["entries"] if entry["profiling_name"] == "nccl:gather"]
        assert {len(entry["output_sizes"]) for entry in gathers} == {4 if rank == 0 else 0}


def test_the_same_request_gives_the_same_bytes_and_another_seed_others() -> None:
    assert dumps_of(plan("collective-extra", 8, seed=5)) == dumps_of(plan("collective-extra", 8, seed=5))
    assert dumps_of(plan("collective-extra", 8, seed=5)) != dumps_of(plan("collective-extra", 8, seed=6))


def test_our_dumps_load_with_nothing_but_pickle() -> None:
    data = dumps_of(plan("stuck-in-python/mid-step", 2))[0]
    assert pickle.loads(data)["version"] == "2.10"
