"""Which rank each dump is of, what it does there, and what several tools say of one process together."""

import pytest

from ncclprobe.analyze.phases import Phase
from ncclprobe.analyze.positions import Position, find_positions
from ncclprobe.model.frames import Frame
from ncclprobe.model.job import Rank
from tests.unit.analyze.stack_texts import GDB_OF_A_GIL_CYCLE, LOADER, REDUCE, TRAIN, loose, py_spy

WORKER = (
    "read (my_data.py:41)\n    __getitem__ (my_data.py:12)\n    fetch (torch/utils/data/_utils/fetch.py:52)\n"
    "    _worker_loop (torch/utils/data/_utils/worker.py:349)\n    run (multiprocessing/process.py:108)"
)
IDLE_WORKER = "get (multiprocessing/queues.py:113)\n    _worker_loop (torch/utils/data/_utils/worker.py:340)"


def positions(files: dict[str, str], ranks: dict[int, Rank] | None = None) -> dict[int, Position]:
    return find_positions(loose(files), ranks or {})


def labelled(text: str, label: str) -> str:
    return "".join(f"{label}{line}\n" for line in text.splitlines())


# --- whose ---


def test_the_name_of_a_file_tells_the_rank_of_the_one_process_in_it() -> None:
    found = positions({"py-spy-rank3.txt": py_spy(REDUCE, TRAIN), "rank12.txt": py_spy(TRAIN)})
    assert {rank: position.phase for rank, position in found.items()} == {3: Phase.COLLECTIVE, 12: Phase.PYTHON}


def test_a_pid_in_the_name_is_no_rank() -> None:
    assert positions({"30441.txt": py_spy(REDUCE, TRAIN, pid=30441)}) == {}


def test_the_name_of_a_host_is_no_rank_of_the_processes_on_it() -> None:
    assert positions({"rank0.txt": py_spy(TRAIN, pid=7) + py_spy(REDUCE, TRAIN, pid=8)}) == {}


def test_labels_win_over_the_name() -> None:
    text = labelled(py_spy(TRAIN, pid=7), "4: ") + labelled(py_spy(REDUCE, TRAIN, pid=7), "5: ")
    assert list(positions({"all-rank0.txt": text})) == [4, 5]


def test_pids_of_known_ranks() -> None:
    ranks = {4: Rank(rank=4, host="a", pid=70), 5: Rank(rank=5, host="a", pid=71), 6: Rank(rank=6, host="b", pid=71)}
    text = py_spy(TRAIN, pid=70) + py_spy(TRAIN, pid=71) + py_spy(TRAIN, pid=72)
    assert list(positions({"stacks.txt": text}, ranks)) == [4]  # two hosts have a process 71


@pytest.mark.parametrize(
    ("titles", "ranks"),
    [
        (["sglang::scheduler_DP3_TP13"], [13]),
        (["sglang::scheduler_TP2", "sglang::scheduler_TP0"], [0, 2]),
        (["VLLM::Worker_TP1"], [1]),
        (["VLLM::Worker_TP1_EP1", "VLLM::Worker_TP0_EP0", "VLLM::EngineCore"], [0, 1]),
        (["VLLM::Worker_DP1_TP1"], []),
        (["sglang::scheduler_PP1_TP0"], []),
        (["sglang::scheduler_PP1_TP0", "sglang::scheduler_PP0_TP0"], [0, 1]),
        ([f"sglang::scheduler_PP{p}_TP{t}" for p in (0, 1) for t in (0, 1)], [0, 1, 2, 3]),
        (["sglang::scheduler_PP0_TP0", "sglang::scheduler_PP0_TP1", "sglang::scheduler_PP1_TP0"], [0, 1]),
        (["python train.py --tp 3", "sglang::detokenizer"], []),
    ],
)
def test_titles_of_processes_tell_ranks_where_they_can(titles: list[str], ranks: list[int]) -> None:
    text = "".join(py_spy(TRAIN, pid=10 + n, title=title) for n, title in enumerate(titles))
    assert list(positions({"stacks.txt": text})) == ranks


def test_the_place_in_the_pipeline_is_the_rank() -> None:
    text = py_spy(REDUCE, pid=8, title="sglang::scheduler_PP1_TP0") + py_spy(
        TRAIN, pid=9, title="sglang::scheduler_PP0_TP1"
    )
    text += py_spy(REDUCE, pid=7, title="sglang::scheduler_PP1_TP1") + py_spy(
        REDUCE, pid=6, title="sglang::scheduler_PP0_TP0"
    )
    assert {rank: p.phase for rank, p in positions({"x.txt": text}).items() if p.phase is Phase.PYTHON} == {
        1: Phase.PYTHON
    }


def test_local_ranks_are_global_ones_on_one_host_only() -> None:
    one = "".join(labelled(py_spy(TRAIN, pid=70 + n), f"[default{n}]:") for n in range(2))
    assert list(positions({"x.txt": one})) == [0, 1]
    assert list(positions({"x.txt": one, "y.txt": one.replace("Process 7", "Process 8")})) == []


@pytest.mark.parametrize(("world_size", "ranks"), [(2, [0, 1]), (3, [0, 1]), (4, [])])
def test_local_ranks_of_a_job_that_has_as_many_elsewhere_are_nobodys(world_size: int, ranks: list[int]) -> None:
    one = "".join(labelled(py_spy(TRAIN, pid=70 + n), f"[default{n}]:") for n in range(2))
    assert list(find_positions(loose({"x.txt": one}), {}, None, world_size)) == ranks


def test_launchers_are_no_ranks() -> None:
    agent = "sleep (x.py:1)\n    _invoke_run (torch/distributed/elastic/agent/server/api.py:900)"
    assert positions({"rank0.txt": py_spy(agent)}) == {}


# --- children ---


def test_workers_are_children_whatever_tells_it() -> None:
    rank = py_spy(LOADER, TRAIN, pid=7)
    for files in (
        {"rank3.txt": rank, "rank3-worker9.txt": py_spy(WORKER, TRAIN, pid=9)},
        {"rank3.txt": rank, "rank3-b.txt": py_spy(WORKER, TRAIN, pid=9)},
        {"rank3.txt": rank + py_spy(WORKER, TRAIN, pid=9, parent=7)},
        {"x.txt": labelled(rank, "3: ") + labelled(py_spy(WORKER, TRAIN, pid=9, parent=7), "3: ")},
    ):
        found = positions(files)
        assert list(found) == [3]
        (child,) = found[3].children
        assert (child.pid, child.is_worker, child.is_at_work) == (9, True, True)
        assert child.user_frame == Frame("read", "my_data.py", 41)
        assert found[3].busy_child is child
        assert found[3].is_still is None


def test_a_worker_without_work_is_not_busy() -> None:
    found = positions({"rank3.txt": py_spy(LOADER, TRAIN), "rank3-worker9.txt": py_spy(IDLE_WORKER, TRAIN, pid=9)})
    assert found[3].busy_child is None
    assert found[3].children[0].place.phase is Phase.DATA


# --- several looks, several tools ---


def test_two_looks_of_different_tools_at_one_place() -> None:
    handler = (
        'Current thread 0x7f (most recent call first):\n  File "/home/user/train.py", line 8 in train\n'
        '  File "/home/user/train.py", line 90 in <module>\n'
    )
    found = positions({"rank0.a.txt": py_spy(TRAIN), "rank0.b.txt": handler})
    assert found[0].is_still is True
    assert positions({"rank0.a.txt": py_spy("f (train.py:3)", TRAIN), "rank0.b.txt": handler})[0].is_still is False


def test_native_frames_of_the_first_look_are_used_and_do_not_count_as_movement() -> None:
    native = f"cuStreamSynchronize (libcuda.so.1)\n    0x7f12 (libcudart.so)\n    {TRAIN}"
    found = positions({"rank0.1.txt": py_spy(native), "rank0.2.txt": py_spy(TRAIN)})
    assert (found[0].is_still, found[0].phase) == (True, Phase.SYNC)
    found = positions({"rank0.1.txt": py_spy(native), "rank0.2.txt": py_spy(REDUCE, TRAIN)})
    assert (found[0].is_still, found[0].phase) == (False, Phase.COLLECTIVE)


@pytest.mark.parametrize(
    ("below", "phase"),
    [
        ("#0  0x7f in cuStreamSynchronize () from libcuda.so.1", Phase.SYNC),
        ("#0  0x7f in poll () from libc.so\n#1  0x7f in c10d::Work::wait() () from x.so", Phase.COLLECTIVE),
        ("#0  0x7f in clock_nanosleep () from libc.so", Phase.PYTHON),
    ],
)
def test_gdb_tells_what_a_line_of_user_code_waits_for(below: str, phase: Phase) -> None:
    gdb = f'Thread 1 (Thread 0x7f (LWP 100) "python"):\n{below}\n'
    found = positions({"py-spy-rank2.txt": py_spy(TRAIN), "gdb-rank2.txt": gdb})
    assert (found[2].phase, found[2].frame, found[2].is_still) == (phase, Frame("train", "train.py", 8), None)


def test_the_kernel_tells_of_input_and_of_storage() -> None:
    for line, phase in (("n_tty_read", Phase.DEBUGGER), ("nfs_wait_bit_killable", Phase.STORAGE)):
        kernel = f"[<0>] {line}+0x1/0x2\n"
        assert positions({"py-spy-rank2.txt": py_spy(TRAIN), "stack-rank2.txt": kernel})[2].phase is phase


def test_hooks_of_backward_run_in_a_thread_of_their_own() -> None:
    backward = "_engine_run_backward (torch/autograd/graph.py:825)\n    backward (torch/_tensor.py:581)"
    hook = 'Thread 102 (active+gil): ""\n    on_grad (my_hook.py:4)\n'
    monitor = 'Thread 101 (idle): "Thread-1"\n    wait (threading.py:331)\n    _bootstrap (threading.py:1002)\n'
    assert positions({"rank0.txt": py_spy(backward, TRAIN, others=monitor)})[0].phase is Phase.BACKWARD
    found = positions({"rank0.txt": py_spy(backward, TRAIN, others=monitor + hook)})[0]
    assert (found.phase, found.user_frame) == (Phase.PYTHON, Frame("on_grad", "my_hook.py", 4))


# --- the interpreter lock ---

SNAPSHOT = py_spy("_snapshot (torch/cuda/memory.py:1014)", TRAIN, pid=1312, state="idle+gil")


def test_a_cycle_of_the_interpreter_lock_and_one_of_c_code() -> None:
    found = positions({"py-spy-rank2.txt": SNAPSHOT, "gdb-rank2.txt": GDB_OF_A_GIL_CYCLE})[2]
    assert found.phase is Phase.LOCK
    assert found.gil_hold is not None
    assert found.gil_hold.blocked_in.function == "c10::cuda::Allocator::snapshot"
    assert [thread.name for thread in found.gil_hold.waiters] == ["pt_autograd_0"]
    assert found.gil_hold.closing is not None
    assert found.gil_hold.artifact.path == "gdb-rank2.txt"


def test_gdb_alone_shows_the_cycle_too() -> None:
    found = positions({"gdb-rank2.txt": GDB_OF_A_GIL_CYCLE})[2]
    assert found.gil_hold is not None
    assert found.gil_hold.closing is not None


def test_without_a_waiter_of_the_same_class_nothing_is_closed() -> None:
    found = positions(
        {
            "py-spy-rank2.txt": SNAPSHOT,
            "gdb-rank2.txt": GDB_OF_A_GIL_CYCLE.replace("Allocator::r", "B::r").replace("Allocator::f", "B::f"),
        }
    )
    assert found[2].gil_hold is not None
    assert found[2].gil_hold.closing is None


@pytest.mark.parametrize("change", [("pthread_mutex_lock", "f"), ("idle+gil", "idle")])
def test_no_mutex_or_no_holder_is_no_such_thing(change: tuple[str, str]) -> None:
    gdb = GDB_OF_A_GIL_CYCLE.replace("take_gil", "g").replace("PyEval_RestoreThread", "h")
    if change[0] == "pthread_mutex_lock":
        gdb = gdb.replace("__lll_lock_wait", "f").replace("std::recursive_mutex", "m")
    files = {"py-spy-rank2.txt": SNAPSHOT.replace(*change), "gdb-rank2.txt": gdb.replace(*change)}
    assert positions(files)[2].gil_hold is None


def test_pystack_says_who_waits_and_who_holds() -> None:
    text = (
        "Traceback for thread 7 (python) [Has the GIL] (most recent call last):\n"
        '    (Python) File "/home/user/train.py", line 3, in <module>\n'
        '    (C) File "???", line 0, in A::lock_it() (/opt/libx.so)\n'
        '    (C) File "???", line 0, in pthread_mutex_lock (/lib/libc.so.6)\n'
        "Traceback for thread 8 (python) [Waiting for the GIL] (most recent call last):\n"
        '    (C) File "???", line 0, in A::free() (/opt/libx.so)\n'
    )
    hold = positions({"rank0.txt": text})[0].gil_hold
    assert hold is not None
    assert (hold.holder.tid, hold.blocked_in.function, len(hold.waiters)) == (7, "A::lock_it", 1)
    assert hold.closing is not None
