"""Ranks at one place are one class, however many; the odd one out comes first."""

import time

from ncclprobe.analyze.classes import find_classes
from ncclprobe.analyze.positions import find_positions
from tests.unit.analyze.stack_texts import LOADER, REDUCE, TRAIN, loose, py_spy

LINES = py_spy(REDUCE, TRAIN).splitlines()


def test_the_odd_one_out_comes_first() -> None:
    files = {f"rank{rank}.txt": py_spy(REDUCE, TRAIN, pid=50 + rank) for rank in range(8) if rank != 5}
    files["rank5.txt"] = py_spy(LOADER, TRAIN, pid=55)
    odd, rest = find_classes(find_positions(loose(files), {}))
    assert (str(odd), str(rest)) == ("5: loading data at train.py:8", "0-4,6-7: in a collective at train.py:8")


def test_the_line_inside_the_innermost_function_may_differ() -> None:
    files = {f"rank{n}.txt": py_spy(f"loop (train.py:{20 + n})", TRAIN) for n in range(3)}
    (found,) = find_classes(find_positions(loose(files), {}))
    assert (found.ranks, found.lines) == ((0, 1, 2), (20, 21, 22))
    files["rank3.txt"] = py_spy("loop (train.py:20)", "train (train.py:9)\n    <module> (train.py:90)")
    assert [found.ranks for found in find_classes(find_positions(loose(files), {}))] == [(3,), (0, 1, 2)]


def test_addresses_of_c_frames_and_folders_do_not_count() -> None:
    files = {
        "rank0.txt": py_spy("0x7f12 (libc.so.6)", TRAIN),
        "rank1.txt": py_spy("0x7f98 (libc.so.6)", TRAIN),
        "rank2.txt": py_spy(TRAIN.replace("train.py", "/home/user/train.py")),
    }
    (found,) = find_classes(find_positions(loose(files), {}))
    assert found.ranks == (0, 1, 2)


def test_classes_below_one_line_are_told_apart() -> None:
    gather = "fetch_sub_module (deepspeed/runtime/zero/partitioned_param_coordinator.py:332)"
    files = {f"rank{n}.txt": py_spy(gather, "forward (transformers/m.py:22)", TRAIN) for n in range(3)}
    files["rank3.txt"] = py_spy(gather, "forward (transformers/m.py:39)", TRAIN)
    texts = [str(found) for found in find_classes(find_positions(loose(files), {}))]
    assert texts == ["3: in a collective at m.py:39", "0-2: in a collective at train.py:8"]


def test_ten_thousand_ranks_in_two_seconds() -> None:
    text = "".join(f"{rank}: {line}\n" for rank in range(10_000) for line in (LINES if rank % 100 else LINES[:-2]))
    stacks = loose({"all.txt": text})
    started = time.process_time()
    classes = find_classes(find_positions(stacks, {}))
    assert time.process_time() - started < 2
    assert [len(found.ranks) for found in classes] == [100, 9_900]
