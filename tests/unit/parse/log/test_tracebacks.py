"""Python tracebacks as they come in logs: decorated, chained, nested, interleaved, cut."""

import json
from collections.abc import Iterable

import pytest

from ncclprobe.model.frames import Frame
from ncclprobe.model.log import Died, Failure, LogEvent, Raised
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.tracebacks import BLOCK_NEEDLES, NEEDLES, RECOGNIZER

HEAD = "Traceback (most recent call last):"
FRAMES = [
    '  File "/app/train.py", line 12, in <module>',
    "    main()",
    "    ^^^^^^",
    '  File "/app/model.py", line 40, in main',
    "    x = f(x)",
]
STACK = (Frame("main", "/app/model.py", 40), Frame("<module>", "/app/train.py", 12))
C10D = '  File "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 4628, in barrier'


def heard(*lines: str | LogLine) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    events: list[LogEvent] = []
    for number, line in enumerate(lines, 1):
        events.extend(recognizer.feed(line if isinstance(line, LogLine) else LogLine(number=number, text=line)))
    return [*events, *recognizer.end()]


def raised(*lines: str | LogLine) -> Raised:
    (event,) = heard(*lines)
    assert isinstance(event.what, Raised)
    return event.what


def test_a_plain_traceback() -> None:
    (event,) = heard("step 3", HEAD, *FRAMES, "ValueError: bad: row 3", "step 4")
    assert event.line == 8
    assert event.quote == "ValueError: bad: row 3"
    assert event.what == Raised(exception="ValueError", message="bad: row 3", failure=Failure.PYTHON, stack=STACK)


DECORATIONS = [
    "[rank3]: ",
    "ERROR 09-25 00:17:{n:02d} [multiproc_executor.py:{n}] ",
    "[2026-03-01 10:00:{n:02d},123] [ERROR] [worker.py:77:run] ",
    "(Worker_TP0 pid=1010) ERROR 09-25 00:17:{n:02d} ",
    "  | ",
    "    ",
    "E0330 16:20:45.{n:06d} 59102 worker.py:10] ",
]


@pytest.mark.parametrize("decoration", DECORATIONS)
def test_decorated_lines(decoration: str) -> None:
    lines = [HEAD, *FRAMES, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB."]
    what = raised(*(decoration.format(n=n) + line for n, line in enumerate(lines, 10)))
    assert (what.exception, what.failure, what.stack) == ("torch.OutOfMemoryError", Failure.GPU_MEMORY, STACK)


def test_speakers_interleave() -> None:
    def of(rank: int, text: str) -> LogLine:
        return LogLine(number=rank, text=text, speaker=f"r{rank}", rank=rank)

    one = [HEAD, *FRAMES, "KeyError: 'a'"]
    two = [HEAD, FRAMES[0], "RuntimeError: CUDA error: device-side assert triggered"]
    lines = [part for pair in zip(one, [*two, *[""] * 4], strict=True) for part in (of(1, pair[0]), of(2, pair[1]))]
    found = {event.rank: event.what for event in heard(*lines)}
    assert isinstance(found[1], Raised)
    assert isinstance(found[2], Raised)
    assert (found[1].exception, found[1].stack) == ("KeyError", STACK)
    assert (found[2].failure, found[2].stack) == (Failure.GPU_ERROR, STACK[1:])


CHAINS = {
    "During handling of the above exception, another exception occurred:": "ValueError",
    "The above exception was the direct cause of the following exception:": "ValueError",
}


@pytest.mark.parametrize("words", CHAINS)
@pytest.mark.parametrize("blank", [[""], []])
def test_the_first_of_a_chain_is_the_cause(words: str, blank: list[str]) -> None:
    second = [HEAD, FRAMES[0], "torch.distributed.DistBackendError: NCCL error in: x.cpp:1, remote process exited"]
    what = raised(HEAD, *FRAMES, "ValueError: bad", *blank, words, *blank, *second)
    assert (what.exception, what.failure, what.stack) == ("ValueError", Failure.PYTHON, STACK)


def test_a_lookup_that_failed_on_the_way_is_no_cause() -> None:
    words = "During handling of the above exception, another exception occurred:"
    last = "RuntimeError: DataLoader worker (pid(s) 2419) exited unexpectedly"
    what = raised(HEAD, FRAMES[0], "_queue.Empty", "", words, "", HEAD, *FRAMES, last)
    assert (what.exception, what.failure, what.stack) == ("RuntimeError", Failure.PYTHON, STACK)


def test_an_exception_of_a_loader_worker_is_inside_the_message() -> None:
    what = raised(
        HEAD, '  File "/v/torch/utils/data/dataloader.py", line 5, in __next__',
        "OSError: Caught OSError in DataLoader worker process 2.", f"Original {HEAD}", *FRAMES,
        "OSError: [Errno 122] Disk quota exceeded", "", "step 3",
    )  # fmt: skip
    assert (what.exception, what.message, what.stack) == ("OSError", "[Errno 122] Disk quota exceeded", STACK)


def test_a_spawned_process_is_known_by_its_number() -> None:
    (event,) = heard(
        HEAD, '  File "/app/main.py", line 2, in <module>', "torch.multiprocessing.spawn.ProcessRaisedException: ", "",
        "-- Process 2 terminated with the following error:", HEAD, *FRAMES, "ZeroDivisionError: division by zero",
    )  # fmt: skip
    assert isinstance(event.what, Raised)
    assert (event.local_rank, event.what.exception, event.what.stack) == (2, "ZeroDivisionError", STACK)


def test_a_ray_task_names_its_process() -> None:
    (event,) = heard(
        HEAD, '  File "/app/driver.py", line 2, in <module>',
        "ray.exceptions.RayTaskError(ValueError): ray::Worker.fit() (pid=4021, ip=10.0.0.2, actor_id=7a)",
        *FRAMES, "ValueError: bad",
    )  # fmt: skip
    assert isinstance(event.what, Raised)
    assert (event.pid, event.host, event.what.exception, event.what.stack) == (4021, "10.0.0.2", "ValueError", STACK)


def test_an_exception_group_tells_its_first_leaf() -> None:
    what = raised(
        "  + Exception Group Traceback (most recent call last):", '  |   File "/app/a.py", line 1, in <module>',
        "  |     run()", "  | ExceptionGroup: workers (2 sub-exceptions)", "  +-+---------------- 1 ----------------",
        f"    | {HEAD}", *(f"    | {line}" for line in FRAMES), "    | ValueError: one",
        "    +---------------- 2 ----------------", f"    | {HEAD}", "    | OSError: two",
        "    +------------------------------------",
    )  # fmt: skip
    assert (what.exception, what.stack) == ("ValueError", STACK)


def test_the_table_of_the_launcher_names_the_rank() -> None:
    (event,) = heard(
        "  rank      : 13 (local_rank: 5)", "  exitcode  : 1 (pid: 59246)", f"  traceback : {HEAD}",
        *(f"  {line}" for line in FRAMES), "  ValueError: bad",
    )  # fmt: skip
    assert isinstance(event.what, Raised)
    assert (event.rank, event.local_rank, event.what.exception, event.what.stack) == (13, 5, "ValueError", STACK)


def test_an_error_file() -> None:
    callstack = "\n".join([HEAD, *FRAMES, "ValueError: bad"])
    message = {"message": "ValueError: bad", "extraInfo": {"py_callstack": callstack, "timestamp": "1774887645"}}
    (event,) = heard(json.dumps({"message": message}))
    assert isinstance(event.what, Raised)
    assert (event.what.stack, event.when_ns) == (STACK, 1774887645 * 10**9)
    assert heard('{"message": {"message": {}}}', '{"message": "x"}', '{"message": [') == []


def test_a_syntax_error_has_a_frame_without_a_function() -> None:
    what = raised('  File "/app/train.py", line 7', "    if x", "        ^", "SyntaxError: expected ':'")
    assert (what.exception, what.stack) == ("SyntaxError", (Frame("<module>", "/app/train.py", 7),))


def test_rich_frames() -> None:
    box = "╭───────────── Traceback (most recent call last) ─────────────╮"
    what = raised(box, "│ /app/train.py:12 in <module>  │", "│ ❱ 12 main() │", "╰──────╯", "ValueError: bad")
    assert (what.exception, what.stack) == ("ValueError", (Frame("<module>", "/app/train.py", 12),))


def test_an_exception_that_names_a_rank_ends_the_nameless_lines_before() -> None:
    end = LogLine(number=7, text="RuntimeError: [Rank 1] Watchdog caught collective timeout", speaker="1", rank=1)
    (event,) = heard(HEAD, *FRAMES, end)
    assert isinstance(event.what, Raised)
    assert (event.rank, event.what.failure, event.what.stack) == (1, Failure.COLLECTIVE_ECHO, STACK)


def test_cut_tracebacks() -> None:
    assert raised(HEAD, *FRAMES).exception == ""
    assert raised(*FRAMES[3:], "ValueError: no head").exception == "ValueError"
    assert raised(HEAD, "ValueError: no frames").stack == ()
    assert heard(*FRAMES) == []  # a stack that something printed: no exception
    assert [event.what.exception for event in heard(HEAD, *FRAMES, HEAD, *FRAMES, "KeyError: 1")
            if isinstance(event.what, Raised)] == ["", "KeyError"]  # fmt: skip


def test_lines_of_others_between() -> None:
    lines = [HEAD, FRAMES[0], "step 5 loss 2.0", *FRAMES[3:], "INFO: saved", "ValueError: bad"]
    assert raised(*lines).stack == STACK


def test_a_killed_loader_worker_has_a_pid() -> None:
    text = "RuntimeError: DataLoader worker (pid 2419) is killed by signal: Killed. "
    first, second = heard(LogLine(number=1, text=HEAD, rank=3), LogLine(number=2, text=text, rank=3))
    assert isinstance(first.what, Raised)
    assert first.what.failure is Failure.HOST_MEMORY
    assert isinstance(second.what, Died)
    assert (second.rank, second.pid, second.what.signal) == (3, 2419, 9)


KINDS: Iterable[tuple[str, Failure]] = [
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.", Failure.GPU_MEMORY),
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.", Failure.GPU_MEMORY),
    ("RuntimeError: CUDA error: out of memory", Failure.GPU_MEMORY),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", Failure.GPU_MEMORY),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", Failure.GPU_FAULT),
    ("torch.AcceleratorError: CUDA error: Invalid access of peer GPU memory over nvlink", Failure.GPU_FAULT),
    ("torch.AcceleratorError: CUDA error: an illegal memory access was encountered", Failure.GPU_ERROR),
    ("RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED", Failure.GPU_ERROR),
    ("MemoryError", Failure.HOST_MEMORY),
    ("OSError: [Errno 12] Cannot allocate memory", Failure.HOST_MEMORY),
    ("ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.", Failure.HOST_MEMORY),
    ("OSError: [Errno 28] No space left on device", Failure.PYTHON),
    ("RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", Failure.PYTHON),
    ("torch.distributed.DistBackendError: NCCL communicator was aborted on rank 3.", Failure.COLLECTIVE_ECHO),
    ("torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0", Failure.COLLECTIVE_ECHO),
    ("RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.1]:1", Failure.CONNECTION_ECHO),
    ("RuntimeError: Broken pipe", Failure.CONNECTION_ECHO),
    ("torch.distributed.DistNetworkError: Connection reset by peer", Failure.CONNECTION_ECHO),
    ("torch.distributed.DistNetworkError: The server socket has failed to listen, EADDRINUSE", Failure.PYTHON),
    ("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ", Failure.LAUNCHER_ECHO),
    ("KeyboardInterrupt", Failure.LAUNCHER_ECHO),
    ("vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue.", Failure.LAUNCHER_ECHO),
    ("mypkg.errors.BadRow: row 3", Failure.PYTHON),
]  # fmt: skip


@pytest.mark.parametrize(("text", "failure"), KINDS)
def test_kinds_of_failures(text: str, failure: Failure) -> None:
    assert raised(HEAD, *FRAMES, text).failure is failure


def test_frames_tell_launchers_downloads_and_waits_apart() -> None:
    agent = '  File "/v/lib/python3.10/site-packages/torch/distributed/elastic/agent/server/api.py", line 7, in run'
    tracker = '  File "/v/site-packages/urllib3/connectionpool.py", line 7, in urlopen'
    assert raised(HEAD, agent, "ValueError: bad port").failure is Failure.LAUNCHER_ECHO
    assert raised(HEAD, tracker, "ConnectionResetError: [Errno 104] Connection reset by peer").failure is Failure.PYTHON
    assert raised(HEAD, *FRAMES, C10D).failure is Failure.COLLECTIVE_ECHO
    assert raised(HEAD, *FRAMES, C10D, "TimeoutError").failure is Failure.COLLECTIVE_ECHO


def test_the_rest_of_a_message_tells_a_fault_of_the_gpu() -> None:
    what = raised(
        HEAD, C10D, "torch.distributed.DistBackendError: NCCL error in: x.cpp:94, unhandled cuda error",
        "ncclUnhandledCudaError: Call to CUDA function failed.", "Last error:",
        "Cuda failure 214 'uncorrectable ECC error encountered'", "step 4",
    )  # fmt: skip
    assert what.failure is Failure.GPU_FAULT


def test_needles_find_heads_and_frames() -> None:
    for text in (HEAD, FRAMES[0]):
        assert any(needle in text.encode() for needle in NEEDLES)
        assert any(needle in text.encode() for needle in BLOCK_NEEDLES)


def test_the_line_right_above_says_whose_it_is() -> None:
    trace = ("Traceback (most recent call last):", '  File "/app/a.py", line 3, in f', "ValueError: x")
    error = LogLine(number=1, text="[rank 3] ERROR step failed", rank=3)
    bare = [LogLine(number=number, text=text) for number, text in enumerate(trace, 2)]
    assert [event.rank for event in heard(error, *bare)] == [3]
    far = [LogLine(number=number, text=text) for number, text in enumerate(trace, 9)]
    assert [event.rank for event in heard(error, *far)] == [None]
    calm = LogLine(number=1, text="[rank 3] INFO step done", rank=3)
    assert [event.rank for event in heard(calm, *bare)] == [None]


def test_a_head_behind_a_label_is_the_line_that_tells_whose_it_is() -> None:
    head = "[2026-06-11 05:44:10 TP3] Scheduler hit an exception: Traceback (most recent call last):"
    (event,) = heard(head, '  File "/app/a.py", line 3, in f', "ValueError: x")
    assert event.line == 1


def test_a_worker_under_the_launchers_wrapper_has_an_exception_of_its_own() -> None:
    wrapper = '  File "/e/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 357, in wrapper'
    own = raised("Traceback (most recent call last):", wrapper, '  File "/app/a.py", line 3, in f', "ValueError: x")
    assert own.failure is Failure.PYTHON


@pytest.mark.parametrize(
    "above", [["Exception in thread Thread-3 (push):"], ["Task exception was never retrieved", "f"]]
)
def test_what_ends_a_thread_or_a_task_only_is_marked(above: list[str]) -> None:
    assert raised(*above, HEAD, *FRAMES, "ValueError: x").is_aside
    assert not raised(*above, "a", "b", "c", "d", HEAD, *FRAMES, "ValueError: x").is_aside
    assert not raised(HEAD, *FRAMES, "ValueError: x").is_aside


@pytest.mark.parametrize("above", ["Exception ignored in: <function Pool.__del__ at 0x7f>", "--- Logging error ---"])
def test_what_python_drops_ended_nothing(above: str) -> None:
    assert heard(above, HEAD, *FRAMES, "ValueError: x", "step 4") == []
