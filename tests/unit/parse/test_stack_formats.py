"""Each form of text: what the tools print, whole, cut, wrapped, with and without what they may leave out."""

from pathlib import Path

import pytest

from ncclprobe.model.frames import Frame, innermost_user_frame
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse.stacks import parse

DATA = Path(__file__).parents[2] / "data" / "stacks"


def read(text: str) -> tuple[StackDump, ...]:
    return parse(text.encode()).records


def functions(dump: StackDump) -> list[str]:
    assert dump.main is not None
    return [frame.function for frame in dump.main.stack]


# --- py-spy's text ---


def test_py_spy_with_children_and_locals() -> None:
    rank, child = read((DATA / "subprocesses.pyspy.txt").read_text())
    assert (rank.pid, rank.command, rank.parent_pid) == (9633, "/opt/venv/bin/python hang.py", None)
    assert [thread.name for thread in rank.threads] == ["MainThread", 'odd "name" (x)']
    assert rank.main is rank.threads[0]
    assert rank.main.stack == (Frame("train", "hang.py", 7), Frame("<module>", "hang.py", 13))
    assert (child.pid, child.parent_pid, len(child.threads)) == (9635, 9633, 1)
    assert functions(child)[-1] == "<module>"
    assert innermost_user_frame(child.main.stack if child.main else ()) == Frame("worker", "hang.py", 4)


@pytest.mark.parametrize(
    ("state", "is_active", "owns_gil"),
    [
        (" (active)", True, False),
        (" (idle)", False, False),
        (" (active+gil)", True, True),
        (" (idle+gil)", False, True),
        (" (gil)", None, True),
        ("", None, None),
    ],
)
def test_states_of_threads(state: str, is_active: bool | None, owns_gil: bool | None) -> None:
    (dump,) = read(f'Thread 7{state}: "MainThread"\n    f (a.py:3)\n')
    (thread,) = dump.threads
    assert (thread.tid, thread.is_active, thread.owns_gil) == (7, is_active, owns_gil)


def test_a_thread_without_a_name_and_one_with_python_s_own_number() -> None:
    (dump,) = read('Thread 0x7F1C2B (idle)\n    f (a.py)\nThread 8 (idle): "MainThread"\n    g (b.py:2)\n')
    assert [(thread.name, thread.tid) for thread in dump.threads] == [("", None), ("MainThread", 8)]
    assert dump.threads[0].stack == (Frame("f", "a.py", None),)


def test_pasted_dumps_without_their_first_lines() -> None:
    one = 'Thread 7 (idle): "MainThread"\n  f (a.py:3)\n  g (b.py:4)\n'
    dumps = read(one + one.replace("7", "9") + one.replace("7", "11"))
    assert [dump.main.tid for dump in dumps if dump.main] == [7, 9, 11]
    assert all(functions(dump) == ["f", "g"] for dump in dumps)


def test_native_frames_have_their_library() -> None:
    (dump,) = read('Thread 7 (idle): "MainThread"\n    0x7f12 (libc.so.6)\n    std::mutex::lock (libcuda.so.1)\n')
    assert dump.main is not None
    assert dump.main.stack == (Frame("0x7f12", "libc.so.6"), Frame("std::mutex::lock", "libcuda.so.1"))
    assert not dump.main.has_python


# --- pystack ---


def test_pystack_prints_the_outermost_frame_first() -> None:
    (dump,) = read((DATA / "allreduce.rank0.pystack.txt").read_text())
    assert (dump.pid, functions(dump)) == (12915, ["all_reduce", "wrapper", "train_step", "<module>"])


def test_pystack_with_native_frames_and_threads() -> None:
    (dump,) = read((DATA / "allreduce.rank0.pystack.native_all.txt").read_text())
    names = [thread.name for thread in dump.threads]
    assert names == ["python", "pt_gloo_runloop", "gloo_tcp_loop", "pt_tcpstore_uv", "pt_gloo_runloop"]
    assert {"c10d::Work::wait", "pthread_cond_wait", "all_reduce", "_start"} <= set(functions(dump))
    assert dump.main is dump.threads[0]
    inner = [frame.function for frame in dump.threads[-1].stack if "gloo::" in frame.function]
    assert inner[0] == "gloo::transport::tcp::UnboundBuffer::waitRecv"


@pytest.mark.parametrize(
    ("state", "owns_gil", "waits_for_gil"),
    [
        ("[]", False, False),
        ("[Has the GIL]", True, False),
        ("[Waiting for the GIL]", False, True),
        ("[Has the GIL,Garbage collecting]", True, False),
    ],
)
def test_pystack_says_who_has_the_lock(state: str, owns_gil: bool, waits_for_gil: bool) -> None:
    (dump,) = read(
        f"Traceback for thread 7 (python) {state} (most recent call last):\n"
        '    (Python) File "a.py", line 3, in <module>\n        f()\n      Locals:\n        x: 1\n'
    )
    (thread,) = dump.threads
    assert (thread.owns_gil, thread.waits_for_gil) == (owns_gil, waits_for_gil)


def test_several_processes_of_pystack() -> None:
    one = (
        'Traceback for thread {} (python) [] (most recent call last):\n    (Python) File "a.py", line 3, in <module>\n'
    )
    assert [dump.pid for dump in read(one.format(7) + one.format(9))] == [7, 9]


# --- gdb ---


def test_gdb_with_sources() -> None:
    (dump,) = read((DATA / "lock.gdb.txt").read_text())
    assert (dump.pid, [thread.tid for thread in dump.threads]) == (9691, [9694, 9691])
    assert functions(dump)[:3] == ["__GI___clock_nanosleep", "pysleep", "time_sleep"]
    assert dump.threads[0].stack[6] == Frame("PyThread_acquire_lock_timed", "Python/thread_pthread.h", 497)
    assert all(frame.is_native for thread in dump.threads for frame in thread.stack)


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("#0  0x7f in poll () from /lib/libc.so.6", Frame("poll", "/lib/libc.so.6")),
        ("#12 0x00007f in ?? () from /lib/libcuda.so.1", Frame("??", "/lib/libcuda.so.1")),
        ("#1  take_gil (tstate=0x7f) at Python/ceval_gil.h:255", Frame("take_gil", "Python/ceval_gil.h", 255)),
        ("#2  0x7f in std::function<void (int)>::operator()(int) const () from x.so",
         Frame("std::function<void", "x.so")),
        ("#3  <signal handler called>", Frame("<signal handler called>", "")),
        ("#4  0x7f in gloo::(anonymous namespace)::ring(int, f(int)) () from libtorch_cpu.so",
         Frame("gloo::{anonymous}::ring", "libtorch_cpu.so")),
        ("#5  0x7f in f.part.0 (x=<optimized out>) at a.c:3", Frame("f", "a.c", 3)),
        ("#6  0x7f in A::operator() (this=0x1) at a.cc:9", Frame("A::operator()", "a.cc", 9)),
        ("#7  0x7f in pthread_cond_wait@@GLIBC_2.3.2 () from libc.so", Frame("pthread_cond_wait", "libc.so")),
        ("#8  0x7f in main ()", Frame("main", "")),
    ],
)  # fmt: skip
def test_frames_of_gdb(line: str, frame: Frame) -> None:
    (dump,) = read(f"Thread 1 (LWP 12):\n{line}\n")
    assert dump.main is not None
    assert dump.main.stack[0].file == frame.file
    assert dump.main.stack[0].line == frame.line
    assert dump.main.stack[0].function.startswith(frame.function)


@pytest.mark.parametrize(
    "header",
    ['Thread 1 (Thread 0x7f (LWP 12) "python"):', "Thread 1 (Thread 0x7f (LWP 12)):", "Thread 1 (process 12):",
     'Thread 1 (LWP 12 "python"):', 'Thread 1 (Thread 0xffff9 (LWP 12) "a b"): (running)'],
)  # fmt: skip
def test_headers_of_gdb(header: str) -> None:
    (dump,) = read(f"{header}\n#0  0x7f in poll () from libc.so\n")
    assert (dump.pid, len(dump.threads)) == (12, 1)


def test_lines_that_a_terminal_broke() -> None:
    frames = "#0  0x7f in f (a=<optimized out>,\n    b=<optimized out>)\n    at ../x.c:31\n#1  0x7f in g ()\n"
    (dump,) = read(f"Thread 1 (LWP 12):\n{frames}")
    assert dump.main is not None
    assert dump.main.stack == (Frame("f", "../x.c", 31), Frame("g", ""))


def test_threads_of_gdb_in_either_order_and_of_two_processes() -> None:
    frame = "#0  0x7f in poll () from libc.so\n"
    falling = "".join(f"Thread {n} (LWP {100 + n}):\n{frame}" for n in (4, 2, 1))
    rising = "".join(f"Thread {n} (LWP {200 + n}):\n{frame}" for n in (1, 2, 4))
    assert [(dump.pid, len(dump.threads)) for dump in read(falling + rising)] == [(101, 3), (201, 3)]


def test_python_frames_that_gdb_s_extension_shows() -> None:
    (dump,) = read(
        "Thread 1 (LWP 12):\nTraceback (most recent call first):\n  <built-in method sleep of module object>\n"
        '  File "/home/user/a.py", line 3, in train\n    time.sleep(9)\n'
    )
    assert dump.main is not None
    assert dump.main.stack == (Frame("train", "/home/user/a.py", 3),)


# --- faulthandler ---


def test_each_time_faulthandler_wrote_is_a_dump() -> None:
    dumps = read((DATA / "timeout.faulthandler.txt").read_text())
    assert [functions(dump) for dump in dumps] == [["h", "<module>"]] * 3
    assert [dump.main.stack[0].line for dump in dumps if dump.main] == [7, 8, 9]


def test_a_fatal_signal() -> None:
    (dump,) = read(
        "Fatal Python error: Segmentation fault\n\nThread 0x00007f12 [worker] (most recent call first):\n"
        '  File "/home/user/b.py", line 9 in run\n  <no Python frame>\n\n'
        'Current thread 0x00007f13 [main] (most recent call first):\n  File "/home/user/a.py", line ??? in f\n'
        '  File "/home/user/a.py", line 3 in <module>\n  ...\n\nExtension modules: numpy.core (total: 1)\n'
    )
    assert [thread.name for thread in dump.threads] == ["worker", "main"]
    assert dump.main is not None
    assert dump.main.stack == (Frame("f", "/home/user/a.py", None), Frame("<module>", "/home/user/a.py", 3))


# --- the kernel ---


def test_a_stack_of_the_kernel() -> None:
    (dump,) = read(
        "[<0>] nfs_wait_bit_killable+0x1e/0x90 [nfs]\n[<0>] rpc_run+0x3/0x9\n[<0>] do_syscall_64+0x71/0x280\n"
    )
    assert functions(dump) == ["nfs_wait_bit_killable", "rpc_run"]
    assert dump.main is not None
    assert all(frame.is_native and not frame.is_user_code for frame in dump.main.stack)


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        (
            "==> /proc/12/stack <==\n[<0>] pipe_read+0x1/0x2\n\n==> /proc/13/stack <==\n[<0>] do_wait+0x1/0x2\n",
            [12, 13],
        ),
        ("/proc/12/wchan:futex_do_wait\n/proc/13/wchan:poll_schedule_timeout.constprop.0\n", [12, 13]),
        ("/proc/12/task/14/stack:[<0>] pipe_read+0x1/0x2\n/proc/12/task/12/stack:[<0>] do_wait+0x1/0x2\n", [12]),
        ("[<ffffffff810d6a4f>] futex_wait_queue_me+0xcf/0x140\n", [None]),
        ("futex_wait_queue\n", [None]),
        ("hrtimer_nanosleep", [None]),
    ],
)
def test_what_the_kernel_says_of_several_processes(text: str, pids: list[int | None]) -> None:
    dumps = read(text)
    assert [dump.pid for dump in dumps] == pids
    assert all(dump.main for dump in dumps)
