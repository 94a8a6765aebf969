"""Run Python code in a new thread of a running process.

In: a thread that sleeps in a system call, the two extension files that pyinjector and hypno install, Python source.
Out: the source runs in a thread of its own in that process; the sleeping thread goes on as if nothing had happened.

pyinjector's file calls functions in a process under ptrace; hypno's is a small library whose `run_python_code` takes
the interpreter lock, runs its `PYTHON_CODE` buffer and gives the lock back. Both are named for one CPython, but neither
depends on it: the first is called by ctypes here, the second uses only the stable C API. hypno's own way is to run the
code while the sleeping thread is borrowed, so that a lock held elsewhere holds that thread too, and to give up then
leaves it broken. Here the borrowed thread only loads the library (an empty buffer makes its constructor do nothing) and
starts a thread: 3 to 5 ms. Who waits for the interpreter lock is the new thread, which harms no one.

The caller must not be killed while a thread is stopped; ptrace requests count only from the OS thread that attached.
x86-64 is tested. aarch64 is written but was never tried: hypno 1.1 and pyinjector 1.4 have no wheels for it.
"""

import ctypes
import errno
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from ncclprobe.model.errors import NcclprobeError

NO_PROCESS, PERMISSION_DENIED = -3, -8  # injector.h
_ADVICE = "use the other evidence"
CODE_MARK = b"\0--- hypno code start ---"
# The buffer holds 60 501 bytes. Its last whole words serve as memory for the new thread's id.
_THREAD_ID_OFFSET = 60_480
_CODE_LIMIT_BYTES = _THREAD_ID_OFFSET - 1

_PTRACE_DETACH = 17
_PTRACE_GETREGSET, _PTRACE_SETREGSET = 0x4204, 0x4205
_PTRACE_SEIZE, _PTRACE_INTERRUPT = 0x4206, 0x4207
_PTRACE_GETSIGMASK, _PTRACE_SETSIGMASK = 0x420A, 0x420B
_WALL = 0x4000_0000
_NT_PRSTATUS, _NT_FPREGSET, _NT_X86_XSTATE = 1, 2, 0x202
_REGISTERS_LIMIT_BYTES = 64 * 1024
# Signals that must get through: faults (4, 5, 7, 8, 11, 31), and the two glibc needs to cancel and to change user ids.
_NEVER_BLOCKED = (4, 5, 7, 8, 11, 31, 32, 33)
_BLOCKED = (1 << 64) - 1 - sum(1 << (number - 1) for number in _NEVER_BLOCKED)
_AARCH64_SVC = b"\x01\x00\x00\xd4"


@dataclass(frozen=True, slots=True, kw_only=True)
class InjectionLibraries:
    """The extension files: `injector` of pyinjector (1.4 or later), `code` of hypno (1.1 or later)."""

    injector: Path
    code: Path


class InjectionError(NcclprobeError):
    """Code could not be run in the process. `status` is pyinjector's error number, None when it is not from there."""

    def __init__(self, what: str, advice: str, status: int | None = None) -> None:
        super().__init__(what, advice)
        self.status = status


class _IoVector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("size_bytes", ctypes.c_size_t)]


@dataclass(slots=True)
class Injector:
    """pyinjector's C functions. `longest_stop_s`: the longest time it has kept a thread stopped."""

    library: ctypes.CDLL
    longest_stop_s: float = field(default=0.0, init=False)

    @classmethod
    def open(cls, path: Path) -> "Injector":
        """Load the extension file by ctypes, whatever Python runs this; InjectionError when that fails."""
        try:
            library = ctypes.CDLL(str(path))
            _declare(library)
        except (OSError, AttributeError) as error:
            what = f"the injection library {path.name} does not load here: {error}"
            raise InjectionError(what, "use pyinjector 1.4 or later, built for this system") from error
        return cls(library)

    @contextmanager
    def stopped(self, pid: int, thread_id: int) -> Iterator["StoppedThread"]:
        """The thread, stopped and able to run functions; afterwards it is as it was and runs on."""
        begin = time.monotonic()
        try:
            with _signals_blocked(thread_id), self._attached(thread_id) as pointer, _kept_registers(thread_id):
                yield StoppedThread(injector=self, pointer=pointer, pid=pid, thread_id=thread_id)
        finally:
            self.longest_stop_s = max(self.longest_stop_s, time.monotonic() - begin)

    @contextmanager
    def _attached(self, thread_id: int) -> Iterator[ctypes.c_void_p]:
        pointer = ctypes.c_void_p()
        self.check(self.library.injector_attach(ctypes.byref(pointer), thread_id))
        try:
            yield pointer
        finally:
            self.library.injector_detach(pointer)

    def check(self, status: int) -> None:
        """Raise InjectionError unless `status` is success."""
        if status != 0:
            text = self.library.injector_error() or b""
            reason = text.decode(errors="replace").strip() or f"error {status}"
            raise InjectionError(f"ptrace injection failed: {reason}", _ADVICE, status)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedThread:
    """A thread under ptrace. Its methods run functions in it; all may raise InjectionError."""

    injector: Injector
    pointer: ctypes.c_void_p
    pid: int
    thread_id: int

    def place(self) -> tuple[int, int] | None:
        """The system call that the stop interrupted, and the stack pointer; None when it ran code of its own."""
        registers = memoryview(_get_registers(self.thread_id, _NT_PRSTATUS)).cast("Q")
        if platform.machine() == "x86_64":
            orig_rax, rsp = registers[15], registers[19]
            return (orig_rax, rsp) if orig_rax < 1 << 63 else None
        # aarch64 forgets the number, but has gone back to the instruction that made the call; x8 holds the number.
        x8, sp, pc = registers[8], registers[31], registers[32]
        with Path(f"/proc/{self.pid}/mem").open("rb", buffering=0) as memory:
            return (x8, sp) if os.pread(memory.fileno(), 4, pc) == _AARCH64_SVC else None

    def load(self, library: str) -> int:
        """Load hypno's file, by its path as the process sees it; the handle that `start` and `unload` take."""
        handle = ctypes.c_void_p()
        self.injector.check(self.injector.library.injector_inject(self.pointer, library.encode(), ctypes.byref(handle)))
        return handle.value or 0

    def unload(self, handle: int) -> None:
        """Unload it again. No thread may be inside it."""
        self.injector.check(self.injector.library.injector_uninject(self.pointer, handle))

    def is_python_running(self, handle: int) -> bool | None:
        """Whether the interpreter is up: not before its start, not after its end. None where it cannot be asked.

        Before glibc 2.34 only a library's own symbols can be looked up here, and Python's are none of hypno's.
        """
        try:
            self._address(handle, b"dlsym")
        except InjectionError:
            return None
        return self._call(self._address(0, b"Py_IsInitialized")) != 0

    def start(self, handle: int, code: bytes) -> None:
        """Run `code` (Python source) in a new thread, in `__main__`, as soon as it gets the interpreter lock."""
        if len(code) > _CODE_LIMIT_BYTES:
            raise InjectionError(f"{len(code)} bytes of code do not fit", f"keep it under {_CODE_LIMIT_BYTES}")
        buffer = self._address(handle, b"PYTHON_CODE")
        run = self._address(handle, b"run_python_code")
        detach = self._address(handle, b"pthread_detach")
        create = self._address(handle, b"pthread_create")
        with Path(f"/proc/{self.pid}/mem").open("r+b", buffering=0) as memory:
            os.pwrite(memory.fileno(), code + b"\0", buffer)
            error = self._call(create, buffer + _THREAD_ID_OFFSET, 0, run, 0)
            if error != 0:
                raise InjectionError(f"no thread could be started: {os.strerror(error)}", "raise its limit of threads")
            thread = os.pread(memory.fileno(), 8, buffer + _THREAD_ID_OFFSET)
        self._call(detach, int.from_bytes(thread, "little"))

    def _address(self, handle: int, name: bytes) -> int:
        address = ctypes.c_size_t()
        find = self.injector.library.injector_remote_func_addr
        self.injector.check(find(self.pointer, handle, name, ctypes.byref(address)))
        return address.value

    def _call(self, address: int, *arguments: int) -> int:
        value = ctypes.c_ssize_t()
        # The C side always takes six arguments from the list.
        words = [ctypes.c_size_t(word) for word in (*arguments, *(0,) * (6 - len(arguments)))]
        self.injector.check(
            self.injector.library.injector_remote_call(self.pointer, ctypes.byref(value), address, *words)
        )
        return ctypes.c_int(value.value).value


def _declare(library: ctypes.CDLL) -> None:
    pointer, address = ctypes.c_void_p, ctypes.c_size_t
    library.injector_attach.argtypes = [pointer, ctypes.c_int]
    library.injector_detach.argtypes = [pointer]
    library.injector_inject.argtypes = [pointer, ctypes.c_char_p, pointer]
    library.injector_uninject.argtypes = [pointer, pointer]
    library.injector_remote_func_addr.argtypes = [pointer, pointer, ctypes.c_char_p, pointer]
    library.injector_remote_call.argtypes = [pointer, pointer, address]
    library.injector_error.argtypes = []
    library.injector_error.restype = ctypes.c_char_p


@contextmanager
def _signals_blocked(thread_id: int) -> Iterator[None]:
    """Hold signals back until the thread is itself again.

    pyinjector takes a signal for the end of its call, and drops it. The new thread inherits the mask, so that it never
    takes a signal that was meant for the job.
    """
    mask = ctypes.c_uint64()
    with _seized(thread_id):
        _ptrace(_PTRACE_GETSIGMASK, thread_id, 8, ctypes.addressof(mask))
        _set_mask(thread_id, mask.value | _BLOCKED)
    try:
        yield
    finally:
        with suppress(InjectionError), _seized(thread_id):  # it may have ended meanwhile
            _set_mask(thread_id, mask.value)


@contextmanager
def _seized(thread_id: int) -> Iterator[None]:
    """Stop the thread in a way that sends it no signal, and lets it go on."""
    _ptrace(_PTRACE_SEIZE, thread_id, 0, 0)
    _ptrace(_PTRACE_INTERRUPT, thread_id, 0, 0)
    _, status = os.waitpid(thread_id, _WALL)
    if not os.WIFSTOPPED(status):
        raise InjectionError(f"thread {thread_id} ended", _ADVICE, NO_PROCESS)
    was_signal = status >> 16 == 0  # else it is our interrupt, or the whole process stops
    try:
        yield
    finally:
        _ptrace(_PTRACE_DETACH, thread_id, 0, os.WSTOPSIG(status) if was_signal else 0)


def _set_mask(thread_id: int, mask: int) -> None:
    word = ctypes.c_uint64(mask)
    _ptrace(_PTRACE_SETSIGMASK, thread_id, 8, ctypes.addressof(word))


@contextmanager
def _kept_registers(thread_id: int) -> Iterator[None]:
    """Keep the floating-point registers: functions overwrite them, and pyinjector restores only the general ones."""
    kind = _NT_X86_XSTATE if platform.machine() == "x86_64" else _NT_FPREGSET
    registers = _get_registers(thread_id, kind)
    try:
        yield
    finally:
        data = ctypes.create_string_buffer(registers, len(registers))
        vector = _IoVector(ctypes.addressof(data), len(registers))
        _ptrace(_PTRACE_SETREGSET, thread_id, kind, ctypes.addressof(vector))


def _get_registers(thread_id: int, kind: int) -> bytes:
    data = ctypes.create_string_buffer(_REGISTERS_LIMIT_BYTES)
    vector = _IoVector(ctypes.addressof(data), len(data))
    _ptrace(_PTRACE_GETREGSET, thread_id, kind, ctypes.addressof(vector))
    return data.raw[: vector.size_bytes]


def _ptrace(request: int, thread_id: int, address: int, data: int) -> None:
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.restype = ctypes.c_long
    ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t]
    if ptrace(request, thread_id, address, data) == -1:
        error = ctypes.get_errno()
        status = {errno.ESRCH: NO_PROCESS, errno.EPERM: PERMISSION_DENIED}.get(error)
        raise InjectionError(f"ptrace request {request:#x} failed: {os.strerror(error)}", _ADVICE, status)
