"""For any bytes a parser gives sound records or says what is wrong, soon."""

import copy
import json
import pickle
import time
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ncclprobe.model.collectives import Recording
from ncclprobe.model.errors import ParseError
from ncclprobe.model.source import SourceFile
from ncclprobe.parse import flight_recorder, gpu, kernel_log, processes, recognize, stacks, user_code
from ncclprobe.parse.parsed import Parsed
from tests.dumps import VERSIONS, WORLD, Group, as_json, call, document, dump, frame
from tests.mutations import mutated
from tests.torch_pickle import torch_pickle

DATA = Path(__file__).parents[1] / "data"
STEP, MAIN = frame("step", line=3), frame("<module>", line=9)
TENSOR = Group(name="7", description="tp", ranks=(0, 1), pg_id=2)
CALLS = [
    call("all_reduce", frames=[STEP, MAIN]),
    call("all_gather", group=TENSOR, sizes=[[2, 3]], output_sizes=[[2, 3], [2, 3]], frames=[MAIN]),
    call("send 0->1", dtypes=["BFloat16"]),
    call("all_reduce", frames=[STEP, MAIN]),
]
SCRIPT = b"""
import torch.distributed as dist
rank = dist.get_rank()
def main(args):
    if rank != 0 and args.quiet:
        return
    for step in range(10):
        if dist.get_rank() == 0:
            log(step)
        elif rank in (1, 2):
            save()
        else:
            x = f() if not rank else None
    match rank:
        case 0 | 1:
            g()
"""
PROCESSES = b'{"processes": [{"pid": 5, "role": "rank", "rank": 0, "job": {"run_id": "x"}, "looks": [{"time_ns": 1, "state": "S", "wchan": null, "cpu_s": 1.5, "threads": 3}]}]}'  # noqa: E501
GPUS = b'{"driver": "550", "gpus": [{"index": 0, "uuid": "G", "util_percent": 100, "power_w": 150.5, "pids": [5]}]}'

SEEDS: dict[Callable[[bytes], Parsed[Any]], list[bytes]] = {
    flight_recorder.parse: [
        *(dump(CALLS, version=version, groups=[WORLD, TENSOR], completed_upto=1) for version in VERSIONS),
        dump(CALLS, form="json", groups=[WORLD, TENSOR]),
        pickle.dumps(document(CALLS), 2),
        pickle.dumps(document(CALLS), 4),
        *(path.read_bytes() for path in sorted((DATA / "flight_recorder").iterdir())),
    ],
    stacks.parse: [path.read_bytes() for path in sorted((DATA / "stacks").iterdir())],
    kernel_log.parse: [(DATA / "kernel_log" / "dmesg_forms.txt").read_bytes()],
    processes.parse: [PROCESSES],
    gpu.parse: [GPUS],
    user_code.parse: [SCRIPT, Path(user_code.__file__).read_bytes()],
}
SECONDS = 5.0


def check(parser: Callable[[bytes], Parsed[Any]], data: bytes) -> bool:
    """Whether there are records; fails when they, or the error, are not as promised."""
    started = time.process_time()
    try:
        parsed = parser(data)
    except ParseError as error:
        check_text(str(error))
        check_text(error.advice)
        return False
    finally:
        assert time.process_time() - started < SECONDS
    for problem in parsed.problems:
        check_text(problem)
    for record in parsed.records:
        check_values(record)
        if isinstance(record, Recording):
            check_recording(record)
        if isinstance(record, SourceFile):
            check_source(record)
    return bool(parsed.records)


def check_text(text: str) -> None:
    text.encode()
    assert not any(character < " " or "\x7f" <= character < "\xa0" for character in text), text


def check_values(value: object) -> None:
    """All text below is fit to show."""
    if isinstance(value, str):
        check_text(value)
    elif isinstance(value, dict):
        check_values(list(value))
        check_values(list(value.values()))
    elif isinstance(value, (tuple, list)):
        for part in value:
            check_values(part)
    elif is_dataclass(value):
        for field in fields(value):
            check_values(getattr(value, field.name))


def check_recording(recording: Recording) -> None:
    columns = ("group_of", "signature_of", "stack_of", "created_ns", "timeout_ms", "is_completed", "is_p2p")
    assert {len(getattr(recording, column)) for column in columns} == {len(recording)}
    for one in recording.calls():
        assert -(1 << 62) < one.seq < 1 << 62
    assert set(recording.group_of_id.values()) <= set(range(len(recording.groups)))
    for group in recording.groups:
        assert list(group.ranks) == sorted(set(group.ranks))
    assert len(set(recording.signatures)) == len(recording.signatures)
    assert len(set(recording.stacks)) == len(recording.stacks)


def check_source(file: SourceFile) -> None:
    for branch in file.branches:
        assert 1 <= branch.first_line <= branch.last_line <= len(file.lines)
        assert branch.taken_by.ranks


@pytest.mark.parametrize("parser", SEEDS, ids=lambda parser: parser.__module__.rpartition(".")[2])
def test_the_seeds_are_read(parser: Callable[[bytes], Parsed[Any]]) -> None:
    for seed in SEEDS[parser]:
        assert check(parser, seed)
        assert parser(seed).problems == ()


@pytest.mark.parametrize("parser", SEEDS, ids=lambda parser: parser.__module__.rpartition(".")[2])
@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_damaged_files(parser: Callable[[bytes], Parsed[Any]], data: st.DataObject) -> None:
    seed = data.draw(st.sampled_from(SEEDS[parser]))
    chance = data.draw(st.randoms(use_true_random=False))
    damaged = mutated(seed, chance)
    check(parser, damaged)
    recognize.kind_of(damaged, "x")


@pytest.mark.parametrize("parser", SEEDS, ids=lambda parser: parser.__module__.rpartition(".")[2])
@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(parser: Callable[[bytes], Parsed[Any]], data: bytes) -> None:
    check(parser, data)
    check(parser, b"\x80\x02" + data)


@pytest.mark.parametrize("parser", SEEDS, ids=lambda parser: parser.__module__.rpartition(".")[2])
def test_every_cut(parser: Callable[[bytes], Parsed[Any]]) -> None:
    seed = SEEDS[parser][0]
    for end in range(0, len(seed), max(1, len(seed) // 200)):
        check(parser, seed[:end])


SCALARS = st.none() | st.booleans() | st.integers(-(1 << 70), 1 << 70) | st.floats() | st.text(max_size=8)
VALUES = st.recursive(
    SCALARS, lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=4), parts, max_size=3)
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_dumps_with_any_value_anywhere(data: st.DataObject) -> None:
    made = copy.deepcopy(document(CALLS, groups=[WORLD, TENSOR]))  # the frames are shared with other tests
    for _ in range(data.draw(st.integers(1, 3))):
        place: Any = made
        while True:
            key = data.draw(st.sampled_from(list(place) if isinstance(place, dict) else range(len(place))))
            if not isinstance(place[key], (dict, list)) or not place[key] or data.draw(st.booleans()):
                place[key] = data.draw(VALUES)
                break
            place = place[key]
    check(flight_recorder.parse, pickle.dumps(made, 2))
    check(flight_recorder.parse, json.dumps(made).encode())


OPS = st.sampled_from(["all_reduce", "broadcast", "barrier", "send 0->1", "recv 1<-0", "_all_gather_base"])
SIZES = st.lists(st.lists(st.integers(0, 1 << 40), max_size=3), max_size=2)
MADE_CALLS = st.builds(
    call,
    OPS,
    group=st.sampled_from([WORLD, TENSOR]),
    sizes=SIZES,
    output_sizes=SIZES,
    dtypes=st.lists(st.sampled_from(["Float", "Half"]), max_size=2),
    frames=st.lists(st.sampled_from([STEP, MAIN]), max_size=4),
    timeout_ms=st.integers(0, 1 << 31),
)


@settings(max_examples=200, deadline=None)
@given(calls=st.lists(MADE_CALLS, max_size=12), upto=st.none() | st.integers(0, 12), version=st.sampled_from(VERSIONS))
def test_what_was_recorded_is_what_is_read(calls: list[Any], upto: int | None, version: str) -> None:
    made = document(calls, version=version, groups=[WORLD, TENSOR], completed_upto=upto)
    entries = made if version == "2.2" else made["entries"]
    parsed = flight_recorder.parse(torch_pickle(made))
    assert parsed.problems == ()
    read = list(parsed.records[0].calls())
    assert [one.signature.op for one in read] == [one.op for one in calls]
    assert [[list(sizes) for sizes in one.signature.input_sizes] for one in read] == [one.sizes for one in calls]
    assert [one.is_completed for one in read] == [entry["state"] == "completed" for entry in entries]
    assert [one.is_p2p for one in read] == [one.is_p2p for one in calls]
    assert [one.group.name for one in read] == [
        one.group.name if version not in ("2.2", "1.4") else str(one.group.pg_id) for one in calls
    ]
    assert [[(part.function, part.line) for part in one.stack] for one in read] == [
        [(part["name"], part["line"]) for part in one.frames] for one in calls
    ]
    if version in ("2.4", "2.9", "2.10"):
        from_json = flight_recorder.parse(json.dumps(as_json(made)).encode()).records[0]
        assert list(from_json.seq) == [one.seq for one in read]
        assert from_json.statuses == parsed.records[0].statuses


# --- conditions: what is said of them holds for every value of the unknown ---

ATOMS = st.sampled_from(
    [
        "rank == 0", "0 == rank", "rank != 1", "rank > 1", "2 >= rank", "rank < 0", "rank in (0, 3)", "rank not in [1]",
        "0 < rank < 3", "rank", "local_rank == 0", "local_rank in [-1, 0]", "local_rank", "a", "b", "a == 1", "True",
        "False", "rank % 2 == 0", "rank == n - 1", "world_size == 1", "world_size > 1", "world_size >= 3",
    ]
)  # fmt: skip
TESTS = st.recursive(
    ATOMS,
    lambda parts: st.one_of(
        parts.map("not ({})".format),
        st.tuples(parts, st.sampled_from([" and ", " or "]), parts).map(
            lambda three: f"({three[0]}){three[1]}({three[2]})"
        ),
        st.tuples(parts, parts, parts).map(lambda three: "({}) if ({}) else ({})".format(*three)),
    ),
    max_leaves=8,
)


@settings(max_examples=400, deadline=None)
@given(test=TESTS)
def test_no_rank_that_can_pass_is_left_out(test: str) -> None:
    (file,) = user_code.parse(f"if {test}:\n    x\nelse:\n    y\n".encode()).records
    compiled = compile(test, "test", "eval")
    for rank, a, b, n in product(range(4), (0, 1), (0, 1), (2, 4)):
        values = {"rank": rank, "local_rank": rank % 2, "a": a, "b": b, "n": n, "world_size": 4}
        branch = file.branch_at(2 if eval(compiled, {}, values) else 4)
        assert branch is None or branch.taken_by.admits(rank, rank % 2)


def _run_by_hand(count: int) -> None:
    """`python -m tests.property.test_parse 100000`: that many damaged files for each parser."""
    for parser, seeds in SEEDS.items():
        started, slowest, kept = time.monotonic(), 0.0, 0
        for number in range(count):
            chance = Random(number)
            data = mutated(chance.choice(seeds), chance)
            begun = time.monotonic()
            try:
                kept += check(parser, data)
            except BaseException:
                Path("damaged").write_bytes(data)
                raise
            slowest = max(slowest, time.monotonic() - begun)
        name = parser.__module__.rpartition(".")[2]
        seconds = time.monotonic() - started
        print(
            f"{name}: {count} files, {kept} with records, slowest {slowest * 1e3:.0f} ms, {seconds:.0f} s", flush=True
        )


if __name__ == "__main__":
    import sys

    _run_by_hand(int(sys.argv[1]))
