"""What py-spy prints as JSON, real and damaged."""

import json
from pathlib import Path

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.frames import Frame, innermost_user_frame
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stack_pyspy_json import parse

DATA = Path(__file__).parents[2] / "data" / "stacks"
THREAD = {
    "pid": 7,
    "thread_name": "MainThread",
    "os_thread_id": 7,
    "active": False,
    "owns_gil": True,
    "frames": [{"name": "Loader.get", "filename": "/home/user/data.py", "line": 3}],
}


def read(text: str) -> StackDump:
    parsed = parse(text)
    assert parsed.problems == ()
    (dump,) = parsed.records
    return dump


def test_a_rank_that_waits_in_a_collective() -> None:
    dump = read((DATA / "allreduce.rank0.pyspy.json").read_text())
    assert dump.main is not None
    assert dump.pid == dump.main.tid
    assert [frame.short_function for frame in dump.main.stack] == ["all_reduce", "wrapper", "train_step", "<module>"]
    assert innermost_user_frame(dump.main.stack) == Frame("train_step", "/home/user/train/hang.py", 8)
    assert (dump.main.is_active, dump.main.owns_gil) == (False, False)


def test_all_threads_of_a_rank_in_its_data_loader() -> None:
    dump = read((DATA / "dataloader.rank1.pyspy.json").read_text())
    assert [thread.name for thread in dump.threads] == ["QueueFeederThread", "MainThread"]
    assert dump.main is dump.threads[1]
    assert any(frame.short_function == "_try_get_data" for frame in dump.main.stack)


def test_a_thread_that_holds_the_interpreter_lock() -> None:
    dump = read((DATA / "spin.rank1.pyspy.json").read_text())
    assert dump.main is not None
    assert (dump.main.is_active, dump.main.owns_gil) == (True, True)


def test_native_frames_are_nobodys_code() -> None:
    dump = read((DATA / "allreduce.rank0.pyspy.native.json").read_text())
    assert dump.main is not None
    assert "c10d::Work::wait" in {frame.function for frame in dump.main.stack}
    assert innermost_user_frame(dump.main.stack) == Frame("train_step", "/home/user/train/hang.py", 8)
    assert dump.main.stack[0].line is None
    assert dump.main.stack[0].is_native


def test_no_threads() -> None:
    assert read("[]") == StackDump(pid=None, threads=())


def test_several_processes_one_after_another() -> None:
    texts = [json.dumps([{**THREAD, "pid": pid}], indent=2) for pid in (7, 8, 9)]
    parsed = parse("\nError: rank 4 is gone\n".join(texts))
    assert [dump.pid for dump in parsed.records] == [7, 8, 9]
    assert parsed.problems == ()


def test_what_comes_before_the_cut_is_kept() -> None:
    whole = json.dumps([THREAD])
    parsed = parse(whole + whole[:-9])
    assert len(parsed.records) == 1
    assert "cut off" in parsed.problems[0]


@pytest.mark.parametrize(
    "change",
    [
        {"frames": 5},
        {"frames": [{"name": "f"}]},
        {"frames": [{"name": 1, "filename": "f"}]},
        {"os_thread_id": "7"},
        {"thread_name": 3},
    ],
)
def test_a_damaged_thread_costs_itself(change: dict[str, object]) -> None:
    parsed = parse(json.dumps([{**THREAD, **change}, THREAD]))
    assert len(parsed.records[0].threads) == 1
    assert len(parsed.problems) == 1
    with pytest.raises(ParseError, match="damaged"):
        parse(json.dumps([{**THREAD, **change}]))


@pytest.mark.parametrize("line", [0, -1, None, True, "3", 1.5])
def test_a_line_that_is_none_is_unknown(line: object) -> None:
    text = json.dumps([{**THREAD, "frames": [{"name": "f", "filename": "a.py", "line": line}]}])
    assert read(text).threads[0].stack == (Frame("f", "a.py", None),)


def test_an_endless_stack_is_cut() -> None:
    frames = [{"name": "f", "filename": "a.py", "line": 1}] * 5_000
    assert len(read(json.dumps([{**THREAD, "frames": frames}])).threads[0].stack) == 2_000


@pytest.mark.parametrize(
    "text", ["", "{}", "[1]", '[{"pid": 1}]', "Error: no such process", '[{"frames": [', "[" * 10**5]
)
def test_what_is_no_stack(text: str) -> None:
    with pytest.raises(ParseError, match="not py-spy JSON"):
        parse(text)
