"""Lines that a narrow terminal broke."""

# ruff: noqa: E501  (lines of logs stay whole)

import io

import pytest

from ncclprobe.parse.log.layout import Layout
from ncclprobe.parse.log.stream import Stream
from ncclprobe.parse.log.wrapping import whole_lines

HEAD = "[rank{rank}]:[E513 13:25:57.715691453 ProcessGroupNCCL.cpp:616] "
LONG = [
    HEAD.format(rank=rank)
    + f"[Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=208811, OpType=BROADCAST,"
    " NumelIn=5163008, NumelOut=5163008, Timeout(ms)=1800000) ran for 1800043 milliseconds before timing out."
    for rank in range(4)
]
STEPS = [f"Epoch 9:   8%|x | {step}/2211 [01:38<18:37]" for step in range(20)]


def wrapped(lines: list[str], width: int, *, trims: bool = False) -> bytes:
    parts = [line[at : at + width] for line in lines for at in range(0, max(1, len(line)), width)]
    return "\n".join(part.rstrip(" ") if trims else part for part in parts).encode() + b"\n"


def whole(log: bytes) -> list[str]:
    stream = Stream(io.BytesIO(log), (), ())
    return [line.text for line in whole_lines(stream.lines(), lambda: stream.layout)]


@pytest.mark.parametrize("width", [72, 80, 90, 100, 111, 120, 132, 160])
def test_broken_lines_are_joined_at_any_width(width: int) -> None:
    assert whole(wrapped(STEPS + LONG, width)) == STEPS + LONG


@pytest.mark.parametrize("width", [80, 100, 120])
def test_a_copy_from_the_screen_has_lost_blanks_at_line_ends(width: int) -> None:
    assert whole(wrapped(STEPS + LONG, width, trims=True)) == STEPS + LONG


def test_one_broken_line_at_a_usual_width() -> None:
    assert whole(wrapped(STEPS + LONG[:1], 100)) == STEPS + LONG[:1]


def test_numbers_are_those_of_the_first_part() -> None:
    stream = Stream(io.BytesIO(wrapped(LONG, 100)), (), ())
    assert [line.number for line in whole_lines(stream.lines(), lambda: stream.layout)] == [1, 4, 7, 10]


@pytest.mark.parametrize(
    "lines",
    [
        LONG,
        ["NAME          READY   STATUS      RESTARTS   AGE", "bert-worker-0 1/1     Running     0          63m", "bert-worker-1 0/1     OOMKilled   0          63m"],
        [f"step {step:4} | loss 1.0000 | grad_norm 0.5000 | 10.0 ms | mem 40.1 GiB" for step in range(50)],
        ["W0401 a.py:8] ****", "W0401 a.py:8] Setting OMP_NUM_THREADS for each process to be 1 in default, please", "*****"] * 3,
        ["Traceback (most recent call last):", '  File "/opt/venv/lib/python3.12/site-packages/torch/_tensor.py", line 9, in f', "    g()"] * 3,
        [f"{{'loss': 0.{step}, 'grad_norm': 1.25, 'learning_rate': 1e-05, 'epoch': 1.0}}" for step in range(10, 90)],
    ],
)  # fmt: skip
def test_whole_lines_stay_as_they_are(lines: list[str]) -> None:
    assert whole("\n".join(lines).encode()) == lines


def test_colours_are_taken_off_even_when_their_escapes_were_lost() -> None:
    log = b"\x1b[36m(WorkerDict pid=4)\x1b[0m \x1b[32mok\x1b[0m\n[36m(WorkerDict pid=4)[0m [rank3] ok\n"
    assert whole(log) == ["(WorkerDict pid=4) ok", "(WorkerDict pid=4) [rank3] ok"]


def test_layout_of_labels() -> None:
    assert Layout.of(b"0: a\n1: b\nsrun: c\n").has_tasks
    assert not Layout.of(b"a\nb\n1: c\n").has_tasks
    assert Layout.of(b"node01: a\nnode02: b\n").hosts == {"node01", "node02"}
    assert not Layout.of(b"INFO: a\nmain.py: b\nEpoch: 3\n").hosts


def test_whose_numbers_labels_are() -> None:
    two = "".join(f"[rank{local}]:[rank{local + 8}]:[E903 01:02:03.4 a.cpp:1] x\n" for local in range(4)).encode()
    assert Layout.of(two).has_role_labels
    assert not Layout.of(two + b"[rank1]:[E903 01:02:03.4 a.cpp:1] x\n").has_role_labels  # torch's own label, alone
    assert not Layout.of(b"[rank1]:[rank1]: x\n" * 3).has_role_labels
    logged = b"[PID:91] [RANK:2] x\n"
    assert Layout.of(logged + b"[rank9]:[E903 01:02:03.4 a.cpp:1] x\n").has_ranks_per_host
    assert not Layout.of(logged + b"[rank1]:[E903 01:02:03.4 a.cpp:1] x\n").has_ranks_per_host
    assert not Layout.of(logged).has_ranks_per_host
    assert Layout.of(b"2026-03-03 10:00:00 3: x\n2026-03-03 10:00:01 2: y\n").has_tasks
    assert Layout.of(b"a/rank3.log:x\na/rank4.log:y\n").has_files
    assert not Layout.of(b"saved to\nout.log:x\ny\nz\n").has_files
