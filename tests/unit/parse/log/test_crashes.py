"""Last words of processes that a signal or a C++ exception ends."""

import pytest

from ncclprobe.model.frames import Frame
from ncclprobe.model.log import Died, Failure, LogEvent, Raised, StoppedByLauncher
from ncclprobe.parse.log.crashes import RECOGNIZER
from ncclprobe.parse.log.line import LogLine


def heard(*texts: str) -> list[LogEvent]:
    recognizer = RECOGNIZER()
    lines = [LogLine(number=number, text=text) for number, text in enumerate(texts, 1)]
    return [*(event for line in lines for event in recognizer.feed(line)), *recognizer.end()]


THROWN = "terminate called after throwing an instance of "


@pytest.mark.parametrize(
    ("name", "what", "failure"),
    [
        ("c10::DistBackendError", "", Failure.COLLECTIVE_ECHO),
        ("std::runtime_error", "  what():  [Rank 0] Watchdog caught collective op: W", Failure.COLLECTIVE_ECHO),
        ("c10::Error", "  what():  CUDA error: an illegal memory access was encountered", Failure.GPU_ERROR),
        ("c10::DistBackendError", "  what():  CUDA error: uncorrectable ECC error encountered", Failure.GPU_FAULT),
        ("std::bad_alloc", "  what():  std::bad_alloc", Failure.HOST_MEMORY),
        ("std::bad_alloc", "", Failure.HOST_MEMORY),
        ("std::out_of_range", "  what():  vector::_M_range_check", Failure.PYTHON),
    ],
)  # fmt: skip
def test_a_cpp_exception(name: str, what: str, failure: Failure) -> None:
    (event,) = heard(f"{THROWN}'{name}'", *([what] if what else []))
    assert isinstance(event.what, Raised)
    assert (event.line, event.what.exception, event.what.failure) == (1, name, failure)


def test_the_text_of_an_exception_comes_next_or_never() -> None:
    first, second = heard(f"{THROWN}'c10::Error'", "", "  what():  CUDA error: misaligned address", f"{THROWN}'X'", "a")
    assert isinstance(first.what, Raised)
    assert isinstance(second.what, Raised)
    assert (first.what.message, second.what.message) == ("CUDA error: misaligned address", "")


def test_the_text_may_name_the_rank() -> None:
    recognizer = RECOGNIZER()
    events = list(recognizer.feed(LogLine(number=1, text=f"{THROWN}'std::runtime_error'")))
    events += recognizer.feed(LogLine(number=2, text="  what():  [Rank 1] Watchdog caught", speaker="1", rank=1))
    events += recognizer.end()
    (event,) = events
    assert isinstance(event.what, Raised)
    assert (event.rank, event.what.message) == (1, "[Rank 1] Watchdog caught")


def test_a_fatal_error_has_the_stack_of_the_current_thread() -> None:
    died, raised = heard(
        "Fatal Python error: Segmentation fault", "", "Thread 0x00007f01 (most recent call first):",
        '  File "/lib/threading.py", line 5 in wait', "", "Current thread 0x00007f02 (most recent call first):",
        '  File "/app/a.py", line 7 in f', '  File "/app/a.py", line 9 in <module>', "", "Extension modules: numpy",
    )  # fmt: skip
    assert isinstance(died.what, Died)
    assert died.what.signal == 11
    assert isinstance(raised.what, Raised)
    assert raised.what.stack == (Frame("f", "/app/a.py", 7), Frame("<module>", "/app/a.py", 9))
    assert raised.what.failure is Failure.PYTHON


def test_an_abort_under_faulthandler_is_an_echo() -> None:
    lines = [
        "Fatal Python error: Aborted",
        "Current thread 0x1 (most recent call first):",
        '  File "a.py", line 7 in f',
    ]
    assert [event.what.failure for event in heard(*lines) if isinstance(event.what, Raised)] == [
        Failure.COLLECTIVE_ECHO
    ]


@pytest.mark.parametrize(
    ("text", "signal", "pid"),
    [
        ("*** SIGSEGV received at time=1774887645 on cpu 3 ***", 11, None),
        ("*** SIGABRT (@0x1) received by PID 4021 (TID 0x7f) from PID 1; stack trace: ***", 6, 4021),
        ("[node01:4021:0:4021] Caught signal 11 (Segmentation fault: address not mapped to object at 0x8)", 11, 4021),
        ("[node01:04021] Signal: Bus error (7)", 7, 4021),
        ("!!!!!!! Segfault encountered !!!!!!!", 11, None),
        ("Segmentation fault (core dumped)", 11, None),
        ("Bus error", 7, None),
        ("Killed", 9, None),
    ],
)
def test_signals(text: str, signal: int, pid: int | None) -> None:
    (event,) = heard(text)
    assert isinstance(event.what, Died)
    assert (event.what.signal, event.pid) == (signal, pid)


def test_what_is_no_crash() -> None:
    (stop,) = heard("*** SIGTERM received at time=1774887645 on cpu 3 ***")
    assert isinstance(stop.what, StoppedByLauncher)
    assert heard("Killed 3 stale workers", "Timeout (0:00:10)!", "Thread 0x7f (most recent call first):") == []
