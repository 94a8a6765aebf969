"""Stacks of any form, damaged in any way: dumps or an error that says why, fit to show, soon."""

import time
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ncclprobe.analyze.phases import place_of
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stacks import is_stacks, parse
from tests.mutations import mutated
from tests.property.test_parse import check

DATA = Path(__file__).parents[1] / "data" / "stacks"
SAMPLES = sorted(DATA.iterdir())
KERNEL = b"==> /proc/12/stack <==\n[<0>] pipe_read+0x1/0x2\n[<0>] vfs_read+0x3/0x4\n/proc/13/wchan:futex_do_wait\n"
PREFIXED = "".join(f"5: {line}\n" for line in (DATA / "subprocesses.pyspy.txt").read_text().splitlines()).encode()
SEEDS = [*(path.read_bytes() for path in SAMPLES), KERNEL, PREFIXED]
SECONDS = 5.0
HOSTILE = [
    b"5: " * 100_000,
    b"(" * 200_000,
    b'Thread 1 (idle): "MainThread"\n' + b"    f" + b" (" * 100_000 + b"a.py:3)\n",
    b'Thread 1 (idle): "MainThread"\n' * 20_000,
    b"Thread 1 (LWP 1):\n" + b"#0  0x7f in f (\n" * 50_000,
    b"Thread 1 (LWP 1):\n#0  0x7f in f\n" + b"    more\n" * 100_000,
    b"Thread 1 (LWP 1):\n#0  0x7f in " + b"operator" * 50_000 + b"\n",
    b'Traceback for thread 1 (p) [] (most recent call last):\n    (C) File "x", line 0, in f' + b" (a" * 50_000,
    b"Traceback for thread 1 (python) [] (most recent call last):\n" * 20_000,
    b"Thread 0x1 (most recent call first):\n" + b'  File "a", line 1 in f\n' * 100_000,
    b"".join(b"Traceback for thread %d (p) [] (most recent call last):\n" % n for n in range(20_000)),
    b"".join(b"Thread %d (LWP %d):\n#0  0x7f in f ()\n" % (n, n) for n in range(20_000)),
    b"\x1b[" * 100_000,
    b"[" + b"[{" * 50_000,
    b"".join(b"h%d: Process %d: x\n" % (n, n) for n in range(20_000)),
    b"[<0>] f+0x1/0x2\n" * 100_000,
    b"Process 99999999999999999999999999: x\nThread 9 (idle)\n    f (a.py:99999999999999999999)\n",
]


@pytest.mark.parametrize("data", HOSTILE, ids=lambda data: repr(data[:24]))
def test_hostile_text_costs_little(data: bytes) -> None:
    started = time.process_time()
    is_stacks(data[: 64 << 10])
    check(parse, data)
    assert time.process_time() - started < SECONDS


@settings(max_examples=600, deadline=None)
@given(data=st.data())
def test_damaged_stacks(data: st.DataObject) -> None:
    chance = data.draw(st.randoms(use_true_random=False))
    damaged = mutated(data.draw(st.sampled_from(SEEDS)), chance)
    is_stacks(damaged)
    if check(parse, damaged):
        for dump in parse(damaged).records:
            check_dump(dump)


def check_dump(dump: StackDump) -> None:
    """All that is told of a dump can be told of any."""
    assert dump.pid is None or dump.pid >= 0
    assert dump.rank_hint is None or dump.rank_hint >= 0
    assert dump.is_worker in (True, False)
    assert dump.is_launcher in (True, False)
    for thread in dump.threads:
        place_of(thread.stack)
        assert all(frame.line is None or frame.line > 0 for frame in thread.stack)


@pytest.mark.parametrize("seed", SEEDS, ids=[*(path.name for path in SAMPLES), "kernel", "prefixed"])
def test_every_cut_keeps_what_came_before(seed: bytes) -> None:
    whole = parse(seed).records
    for end in range(0, len(seed), max(1, len(seed) // 60)):
        check(parse, seed[:end])
        is_stacks(seed[:end])
    if seed.startswith((b"Process", b"Thread 2 (Thread", b"Timeout")):  # pystack ends in the innermost frame
        assert parse(seed[: len(seed) * 9 // 10]).records[0].threads[0].stack[:2] == whole[0].threads[0].stack[:2]


WORDS = st.sampled_from(
    ["5: ", "[rank1]: ", "node1: ", "Process 12: x\n", 'Thread 7 (idle): "MainThread"\n', "    f (a.py:3)\n", "\n",
     "Thread 1 (LWP 9):\n", "#0  0x7f in f () from x.so\n", "Traceback for thread 3 (p) [] (most recent call last):\n",
     '    (Python) File "a.py", line 3, in f\n', "Current thread 0x7f (most recent call first):\n",
     '  File "a.py", line 3 in f\n', "[<0>] f+0x1/0x2\n", "futex_do_wait\n", "[{", '"frames"', "}]", "Error: no\n",
     "  "]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(words=st.lists(WORDS, max_size=30))
@example(words=["5: ", "[rank1]: ", "node1: ", "Process 12: x\n"])
def test_parts_in_any_order(words: list[str]) -> None:
    data = "".join(words).encode()
    is_stacks(data)
    check(parse, data)


@settings(max_examples=100, deadline=None)
@given(
    ranks=st.lists(st.integers(0, 5000), min_size=1, max_size=20, unique=True),
    functions=st.lists(
        st.from_regex(r"[a-z_]{1,9}(\.<locals>)?(\.[a-z]{1,5})?", fullmatch=True), min_size=1, max_size=9
    ),
)
def test_what_is_printed_behind_labels_is_read(ranks: list[int], functions: list[str]) -> None:
    lines = ['Thread 7 (idle): "MainThread"', *(f"    {name} (a/b.py:{n + 1})" for n, name in enumerate(functions))]
    text = "".join(f"{rank}: {line}\n" for line in lines for rank in ranks)
    dumps = parse(text.encode()).records
    assert [dump.rank for dump in dumps] == ranks
    for dump in dumps:
        assert dump.main is not None
        assert [(frame.function, frame.line) for frame in dump.main.stack] == [
            (f, n + 1) for n, f in enumerate(functions)
        ]


@settings(max_examples=100, deadline=None)
@given(data=st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    is_stacks(data)
    check(parse, data)
