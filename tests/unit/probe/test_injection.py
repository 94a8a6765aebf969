"""Borrowing a thread of a running process: what is kept, what is refused, and that the process goes on."""

import ctypes.util
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.probe.injection import NO_PROCESS, InjectionError, Injector
from tests.asked_processes import FAKE_TORCH, WAIT, Asked, asked, libraries, wait_until

COUNT_SIGNALS = """
import signal
signals = []
signal.signal(signal.SIGUSR1, lambda *_: signals.append(1))
"""


@pytest.fixture
def injector() -> Injector:
    return Injector.open(libraries().injector)


@pytest.fixture
def reader() -> Iterator[Asked]:
    """One thread, asleep in read."""
    with asked(FAKE_TORCH + COUNT_SIGNALS + WAIT + "print(len(signals))") as process:
        assert wait_until(lambda: system_call(process.pid)[0] == "0")
        yield process


def system_call(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/syscall").read_text().split()


def blocked_signals(pid: int) -> str:
    return next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("SigBlk"))


def test_code_runs_in_a_thread_of_its_own(injector: Injector, reader: Asked, tmp_path: Path) -> None:
    note = tmp_path / "note"
    code = f"open({str(note)!r}, 'x').write(str(threading.get_native_id()))"

    with injector.stopped(reader.pid, reader.pid) as thread:
        handle = thread.load(str(libraries().code))
        assert thread.is_python_running(handle)
        thread.start(handle, code.encode())

    assert wait_until(lambda: note.exists() and note.read_text() != "")
    assert int(note.read_text()) != reader.pid
    assert 0 < injector.longest_stop_s < 5
    reader.finish()


def test_the_place_of_the_stop_is_what_the_kernel_said_before(injector: Injector, reader: Asked) -> None:
    words = system_call(reader.pid)

    with injector.stopped(reader.pid, reader.pid) as thread:
        assert thread.place() == (int(words[0]), int(words[7], 16))


def test_no_place_when_the_thread_was_at_work(injector: Injector) -> None:
    with (
        asked("print('ready', flush=True)\nwhile True: pass") as spinner,
        injector.stopped(spinner.pid, spinner.pid) as thread,
    ):
        assert thread.place() is None


def test_a_signal_that_comes_meanwhile_is_kept_for_later(injector: Injector, reader: Asked) -> None:
    before = blocked_signals(reader.pid)

    with injector.stopped(reader.pid, reader.pid) as thread:
        os.kill(reader.pid, signal.SIGUSR1)
        thread.unload(thread.load(str(libraries().code)))
        assert blocked_signals(reader.pid) != before

    assert wait_until(lambda: blocked_signals(reader.pid) == before)
    assert reader.finish() == "1\n"


def test_a_library_that_cannot_be_loaded_is_an_error_and_no_harm(injector: Injector, reader: Asked) -> None:
    with (
        pytest.raises(InjectionError, match="cannot open shared object file"),
        injector.stopped(reader.pid, reader.pid) as thread,
    ):
        thread.load("/does/not/exist.so")

    reader.finish()


def test_code_that_does_not_fit_is_refused(injector: Injector, reader: Asked) -> None:
    with injector.stopped(reader.pid, reader.pid) as thread:
        handle = thread.load(str(libraries().code))
        with pytest.raises(InjectionError, match="do not fit"):
            thread.start(handle, b" " * 60_480)
        thread.unload(handle)

    reader.finish()


def test_a_thread_that_is_gone_is_told_apart(injector: Injector) -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)

    with pytest.raises(InjectionError) as caught, injector.stopped(pid, pid):
        pass

    assert caught.value.status == NO_PROCESS


@pytest.mark.parametrize("name", ["absent.so", "libc"])
def test_a_file_that_is_not_the_library_is_refused(name: str) -> None:
    path = ctypes.util.find_library("c") if name == "libc" else name

    with pytest.raises(InjectionError, match="does not load here"):
        Injector.open(Path(str(path)))
