"""Stacks for analyzer tests, written as the tools print them.

In: text, and the file it would be in. Out: the model's own types, through the parser.
"""

from collections.abc import Mapping

from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.records import Sourced
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse import recognize, stacks

REDUCE = "all_reduce (torch/distributed/distributed_c10d.py:2810)\n    wrapper (torch/distributed/c10d_logger.py:83)"
LOADER = (
    "select (selectors.py:415)\n    get (multiprocessing/queues.py:113)\n"
    "    _try_get_data (torch/utils/data/dataloader.py:1275)\n    __next__ (torch/utils/data/dataloader.py:734)"
)
TRAIN = "train (train.py:8)\n    <module> (train.py:90)"


def py_spy(
    *frames: str, pid: int = 100, state: str = "idle", title: str = "python train.py", others: str = "", parent: int = 0
) -> str:
    """One process as py-spy's text shows it: the main thread's frames, and text of other threads before it."""
    origin = f"Parent Process {parent}: python\n" if parent else ""
    stack = "\n    ".join(frames)
    head = f"Process {pid}: {title}\nPython v3.11.9 (/usr/bin/python3.11)\n{origin}\n"
    return f'{head}{others}Thread {pid} ({state}): "MainThread"\n    {stack}\n'


def loose(files: Mapping[str, str]) -> tuple[Sourced[StackDump], ...]:
    """Files as a person gives them: of no host, the rank in their names if anywhere."""
    return tuple(
        Sourced(
            Artifact(path=name, kind=Kind.STACKS, host="", origin=name, rank=recognize.rank_of(Kind.STACKS, name)),
            dump,
        )
        for name, text in files.items()
        for dump in stacks.parse(text.encode()).records
    )


GDB_OF_A_GIL_CYCLE = """\
Thread 7 (Thread 0x7f69 (LWP 1388) "pt_autograd_0"):
#0  0x7f1e in futex_abstimed_wait_cancelable (private=0) at ../sysdeps/nptl/futex-internal.h:320
#1  0x7f9a in PyCOND_TIMEDWAIT (us=5000) at Python/condvar.h:73
#2  0x7fe7 in take_gil (tstate=0x7fe7) at Python/ceval_gil.h:255
#3  0x7fe9 in PyEval_RestoreThread () from /opt/venv/bin/python3.11
#4  0x7f15 in c10::cuda::Allocator::record_trace(...) () from libc10_cuda.so
#5  0x7fc1 in c10::cuda::Allocator::free(...) () from libc10_cuda.so

Thread 1 (Thread 0x7fa2 (LWP 1312) "pt_main_thread"):
#0  0x7f7e in __lll_lock_wait () from /lib/x86_64-linux-gnu/libc.so.6
#1  0x7fe1 in pthread_mutex_lock () from /lib/x86_64-linux-gnu/libc.so.6
#2  0x7f07 in std::recursive_mutex::lock() () from libc10_cuda.so
#3  0x7f7d in c10::cuda::Allocator::snapshot(...) () from libc10_cuda.so
#4  0x7f95 in _PyEval_EvalFrameDefault () from /opt/venv/bin/python3.11
"""
