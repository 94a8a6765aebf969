"""Stacks of any form are told by their content, those of several processes by what stands before each line."""

import json
from pathlib import Path

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.parse.stacks import is_stacks, parse

DATA = Path(__file__).parents[2] / "data" / "stacks"
SAMPLES = sorted(DATA.iterdir())
TEXT = """\
Process 12: /opt/venv/bin/python train.py
Python v3.11.9 (/opt/venv/bin/python3.11)

Thread 12 (idle): "MainThread"
    all_reduce (torch/distributed/distributed_c10d.py:2810)
    train (train.py:8)
"""
JSON = json.dumps(
    [{"pid": 12, "thread_name": "MainThread", "frames": [{"name": "f", "filename": "a.py", "line": 1}]}], indent=1
)
GDB = 'Thread 1 (Thread 0x7f (LWP 12) "python"):\n#0  0x00007f in poll () from /lib/libc.so.6\n'
LOG = "".join(f"step {n} loss 2.5\n" for n in range(100))


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_real_output_is_recognized_and_read(path: Path) -> None:
    data = path.read_bytes()
    assert is_stacks(data[: 64 << 10])
    parsed = parse(data)
    assert parsed.problems == ()
    assert all(dump.main and dump.main.stack for dump in parsed.records)


@pytest.mark.parametrize(
    "text", [TEXT, GDB, JSON, "$ py-spy dump --pid 12\n" + TEXT, "node1$ gdb -p 12\n[New LWP 13]\n" + GDB, "do_wait\n"]
)
def test_stacks_are_recognized(text: str) -> None:
    assert is_stacks(text.encode())
    assert is_stacks(text.replace("\n", "\r\n").encode())
    assert len(parse(text.encode()).records) == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"hello\n",
        b"\0" * 100,
        b'[{"pid": 1}]',
        b"[1, 2]",
        LOG.encode(),
        (LOG + TEXT).encode(),
        b"3: step 1\n3: step 2\n",
        b"Thread safety is off\nProcess started\n",
        b"[  495.582151] Memory cgroup out of memory: Killed process 1 (x)\n",
        b"Traceback (most recent call last):\n  File 'x', line 1, in f\nValueError: x\n",
    ],
)
def test_what_is_something_else_is_not(data: bytes) -> None:
    assert not is_stacks(data)


def labelled(text: str, label: str) -> str:
    return "".join(f"{label}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize("text", [TEXT, GDB, JSON], ids=["py-spy", "gdb", "json"])
@pytest.mark.parametrize(
    ("label", "rank"),
    [
        ("5: ", 5),
        (" 15: ", 15),
        ("[rank3]: ", 3),
        ("[rank3]:", 3),
        ("[Rank 0] ", 0),
        ("[1,3]<stdout>:", 3),
        ("[1,3]<stderr>: ", 3),
        ("[prterun-node1-77@1,2]<stdout>:", 2),
        ("node1: 6: ", 6),
        ("10.0.0.1: [rank7]: ", 7),
        ("node-01.cluster: ", None),
        ("[default1]:", None),
        ("(Worker_TP1 pid=12) ", None),
    ],
)
def test_the_rank_is_told_by_the_label(text: str, label: str, rank: int | None) -> None:
    data = labelled(text, label).encode()
    assert is_stacks(data)
    (dump,) = parse(data).records
    assert (dump.rank, dump.pid) == (rank, 12)
    assert dump.main is not None
    assert [frame.line for frame in dump.main.stack] == [
        frame.line for frame in parse(text.encode()).records[0].main.stack
    ]  # type: ignore[union-attr]


def test_interleaved_lines_of_many_ranks() -> None:
    lines = TEXT.replace("train.py:8", "train.py:{rank}").splitlines()
    mixed = "\n".join(f"{rank}: {line}".format(rank=rank).rstrip() for line in lines for rank in range(40))
    dumps = parse(mixed.encode()).records
    assert [dump.rank for dump in dumps] == list(range(40))
    assert [dump.main.stack[-1].line for dump in dumps if dump.main] == [None, *range(1, 40)]


def test_more_of_what_a_label_says() -> None:
    (dump,) = parse(labelled(GDB, "(Worker_TP1 pid=77, ip=10.0.0.1) ").encode()).records
    assert (dump.pid, dump.command, dump.rank_hint) == (12, "Worker_TP1", 1)
    (dump,) = parse(labelled(GDB, "[default2]:").encode()).records
    assert dump.local_rank == 2
    (dump,) = parse(labelled(GDB, "node7: ").encode()).records
    assert dump.host == "node7"


def test_what_py_spy_could_not_read_is_a_problem() -> None:
    text = labelled(TEXT, "0: ") + "1: Error: Failed to get process executable name. Check that it is running.\n"
    parsed = parse((text + "1:     all_reduce (a.py:3)\n").encode())
    assert [dump.rank for dump in parsed.records] == [0]
    parsed = parse((TEXT + "Error: Permission Denied (os error 13)\n").encode())
    assert parsed.problems == ("no stacks: Permission Denied (os error 13)",)


def test_several_forms_in_one_file() -> None:
    dumps = parse((TEXT + "\n" + GDB + "\n" + TEXT.replace("12", "13")).encode()).records
    assert [(dump.pid, len(dump.threads)) for dump in dumps] == [(12, 1), (12, 1), (13, 1)]


def test_colours_and_windows_line_ends() -> None:
    coloured = TEXT.replace("all_reduce", "\x1b[32mall_reduce\x1b[0m").replace("\n", "\r\n")
    assert parse(coloured.encode()).records == parse(TEXT.encode()).records


@pytest.mark.parametrize("data", [b"", b"{}", b"Error: no such process", b"step 1\n", b"Process 12: python\n"])
def test_what_holds_no_stack(data: bytes) -> None:
    with pytest.raises(ParseError, match="no"):
        parse(data)


def test_binary_is_refused() -> None:
    with pytest.raises(ParseError, match="binary"):
        parse(b"Process 12: x\n\0\0")
