"""Lines that people and shells write above stacks tell whose they are, and nothing inside a stack does."""

import json
import time

import pytest

from ncclprobe.parse.stacks import is_stacks, parse

PY_SPY = (
    "Process {pid}: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
    'Thread {pid} (idle): "MainThread"\n    f (train.py:8)\n'
)
GDB = 'Thread 1 (Thread 0x7f0000 (LWP {pid}) "python"):\n#0  0x00007f0000aa in poll () from /lib/libc.so.6\n'
FAULT = 'Current thread 0x00007f2b00000001 (most recent call first):\n  File "/app/train.py", line 8 in f\n'
KERNEL = "[<0>] futex_wait_queue+0x66/0x90\n[<0>] do_futex+0x105/0x260\n"


def ranks_of(text: str) -> list[int | None]:
    assert is_stacks(text.encode())
    return [dump.rank for dump in parse(text.encode()).records]


@pytest.mark.parametrize(
    "heading",
    [
        "=========== rank {rank} ===============",
        "### rank {rank} pid 501{rank}",
        "Rank {rank}:",
        "# RANK={rank}",
        "==> py-spy-rank{rank}.txt <==",
        "--- node1 local_rank=0 rank={rank} ---",
        "global rank {rank} of 8",
        "$ py-spy dump --pid 501{rank}  # rank {rank}",
        "+ echo 'rank {rank}'\nrank {rank}\n+ py-spy dump --pid 501{rank}",
    ],
)
@pytest.mark.parametrize("stack", [PY_SPY, GDB, FAULT])
def test_a_heading_tells_the_rank(heading: str, stack: str) -> None:
    text = "".join(f"{heading.format(rank=rank)}\n{stack.format(pid=f'501{rank}')}\n" for rank in (3, 1))
    assert ranks_of(text) == [3, 1]


@pytest.mark.parametrize(
    "line", ["ranks 0-7 hang", "node_rank 1", "rank 0 waits for rank 3", "local rank 2", "frank 5"]
)
def test_other_words_are_no_rank(line: str) -> None:
    assert ranks_of(f"{line}\n{PY_SPY.format(pid=7)}") == [None]


def test_below_a_heading_for_several_processes_nobody_is_told_apart() -> None:
    assert ranks_of("all of rank 0's host\n" + PY_SPY.format(pid=7) + PY_SPY.format(pid=8)) == [None, None]


def test_json_below_headings() -> None:
    thread = {"pid": 12, "thread_name": "MainThread", "frames": [{"name": "f", "filename": "/rank7/a.py", "line": 1}]}
    assert ranks_of("".join(f"rank {rank}\n{json.dumps([thread], indent=1)}\n" for rank in (0, 1))) == [0, 1]


def test_local_ranks_of_headings_and_of_command_lines() -> None:
    text = "local rank 2\n" + PY_SPY.format(pid=7) + PY_SPY.replace("train.py\n", "train.py --local_rank=3\n", 1)
    dumps = parse(text.replace("{pid}", "8").encode()).records
    assert [dump.local_rank for dump in dumps] == [None, 3]
    alone = parse(("local rank 2\n" + PY_SPY.format(pid=7)).encode()).records
    assert [dump.local_rank for dump in alone] == [2]


@pytest.mark.parametrize("command", ["$ cat /proc/{pid}/stack", "root@n1:~# sudo cat /proc/{pid}/stack", "pid {pid}"])
def test_the_pid_of_kernel_stacks(command: str) -> None:
    text = "".join(f"{command.format(pid=pid)}\n{KERNEL}" for pid in (90412, 90409))
    assert is_stacks(text.encode())
    assert [dump.pid for dump in parse(text.encode()).records] == [90412, 90409]


def test_threads_that_a_loop_names_by_their_folder() -> None:
    text = "".join(f"/proc/77/task/{tid}\n{KERNEL}" for tid in (77, 80))
    (dump,) = parse(text.encode()).records
    assert (dump.pid, [thread.tid for thread in dump.threads]) == (77, [77, 80])


def test_a_backtrace_of_the_current_thread_alone() -> None:
    frame = "#0  0x00007f0000aa11 in poll () from /lib/libc.so.6\n#1  0x00007f0000bb in main () from python\n"
    assert ranks_of(f"rank 0\n(gdb) bt\n{frame}rank 1\n(gdb) bt\n{frame}") == [0, 1]


def test_a_large_file_of_headings_takes_bounded_time() -> None:
    data = ("rank 3 pid 12 " * 10_000 + "\n" + "rank 3 pid 12 -p \n" * 20_000 + PY_SPY.format(pid=1)).encode()
    start = time.monotonic()
    parse(data)
    assert time.monotonic() - start < 10


def test_a_log_whose_lines_tell_their_rank_is_a_log() -> None:
    steps = "".join(f"rank {n % 8}: step {n} loss 2.5\n" for n in range(100))
    assert not is_stacks((steps + FAULT).encode())
