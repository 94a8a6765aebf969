"""Asking a running process: the answer, the reasons for none, and that the process goes on in every case."""

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import ncclprobe
from ncclprobe.probe import target_code
from ncclprobe.probe.askable import sleeping_threads
from ncclprobe.probe.live_dump import LiveDump, LiveDumpRefusedError, LiveDumpTimeoutError, ask
from ncclprobe.probe.target_directory import NAME_PREFIX, NoDirectoryError, private_directory
from tests.asked_processes import FAKE_TORCH, SLEEPER, WAIT, asked, guardians, left_behind, libraries, wait_until

GLOO = b"profiling_name gloo:all_reduce"


def ask_it(pid: int, *, timeout_s: float = 10.0) -> LiveDump:
    return ask(pid, libraries(), timeout_s=timeout_s)


def refusal(pid: int) -> str:
    with pytest.raises(LiveDumpRefusedError) as caught:
        ask_it(pid)
    assert caught.value.advice
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    files, processes = left_behind(), guardians()
    yield
    assert wait_until(lambda: left_behind() <= files)
    assert wait_until(lambda: guardians() <= processes)


# What comes back


def test_the_recorder_comes_back_and_the_process_is_as_before() -> None:
    program = f"""{FAKE_TORCH}{SLEEPER}
before = [set(globals()), set(sys.modules), threading.active_count()]
{WAIT}
del before[0]
print(set(globals()) - {{"before"}} <= set(dir()), set(sys.modules) - before[0], threading.active_count() - before[1])
print(sorted(name for name in globals() if name in ("directory", "parts", "decoy", "_thread", "posix")))
"""
    with asked(program) as process:
        answer = ask_it(process.pid)

        assert answer.dumps == {"c10d": GLOO}
        assert answer.problems == ()
        assert 0 < answer.pause_s < answer.seconds < 10
        assert wait_until(lambda: "code.so" not in Path(f"/proc/{process.pid}/maps").read_text())
        assert process.finish() == "True set() 0\n[]\n"


def test_it_may_be_asked_again_and_again() -> None:
    with asked(FAKE_TORCH + SLEEPER + WAIT + "print(len(asked))") as process:
        for _ in range(5):
            ask_it(process.pid)
        assert process.finish() == "5\n"


@pytest.mark.parametrize(
    ("nccl", "gloo", "recorders"),
    [
        ("profiling_name a", "profiling_name b", {"nccl", "c10d"}),
        ("profiling_name a", "no entries", {"nccl"}),
        ("no entries", "profiling_name b", {"c10d"}),
        ("no entries", "no entries", {"nccl", "c10d"}),
    ],
)
def test_an_empty_recorder_is_left_out_beside_a_filled_one(nccl: str, gloo: str, recorders: set[str]) -> None:
    dumps = f"binding._dump_nccl_trace = lambda: b'{nccl}'\nbinding._dump_fr_trace = lambda: b'{gloo}'\n"
    with asked(FAKE_TORCH + dumps + WAIT) as process:
        assert set(ask_it(process.pid).dumps) == recorders


def test_one_recorder_may_fail() -> None:
    with asked(FAKE_TORCH + "binding._dump_nccl_trace = lambda: 1 / 0\n" + WAIT) as process:
        answer = ask_it(process.pid)
        process.finish()
    assert answer.dumps == {"c10d": GLOO}
    assert answer.problems == ("_dump_nccl_trace: ZeroDivisionError: division by zero",)


def test_the_question_of_torch_for_its_compiler_loads_nothing() -> None:
    program = f"""{FAKE_TORCH}
loads = []
class Torch(types.ModuleType):
    def __getattr__(self, name):  # torch loads these on first use
        if name == "_inductor":
            loads.append(name)
        raise AttributeError(name)
torch = sys.modules["torch"] = Torch("torch")
binding._dump_fr_trace = lambda: str(hasattr(torch, "_inductor") and hasattr(torch._inductor, "codecache")).encode()
{WAIT}
print(loads, "_inductor" in vars(torch))
"""
    with asked(program) as process:
        assert ask_it(process.pid).dumps == {"c10d": b"False"}
        assert process.finish() == "[] False\n"


def test_another_thread_that_needs_the_compiler_meanwhile_gets_it() -> None:
    program = f"""{FAKE_TORCH}
torch = sys.modules["torch"] = types.ModuleType("torch")
sys.modules["torch._inductor"] = types.SimpleNamespace(config="real")
seen = []
def dump():
    other = threading.Thread(target=lambda: seen.append(torch._inductor.config))
    other.start()
    other.join()
    return str(hasattr(torch._inductor, "config")).encode()
binding._dump_fr_trace = dump
{WAIT}
print(seen, hasattr(torch, "_inductor"))
"""
    with asked(program) as process:
        assert ask_it(process.pid).dumps == {"c10d": b"False"}
        assert process.finish() == "['real'] False\n"


def test_a_compiler_that_is_loaded_is_asked() -> None:
    program = f"""{FAKE_TORCH}
torch = sys.modules["torch"] = types.ModuleType("torch")
torch._inductor = types.SimpleNamespace(codecache=1)
binding._dump_fr_trace = lambda: str(hasattr(torch._inductor, "codecache")).encode()
{WAIT}
print(torch._inductor.codecache)
"""
    with asked(program) as process:
        assert ask_it(process.pid).dumps == {"c10d": b"True"}
        assert process.finish() == "1\n"


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import sys\n", "torch is not loaded"),
        ("import sys, types\nsys.modules['torch'] = types\n", "torch has no torch.distributed"),
        (FAKE_TORCH + "del binding._dump_fr_trace\n", "too old"),
        (FAKE_TORCH + "binding._dump_fr_trace = lambda: 1 / 0\n", "_dump_fr_trace: ZeroDivisionError"),
    ],
)
def test_a_process_without_recorder_says_why(program: str, reason: str) -> None:
    with asked(program + WAIT + "print('torch._C' in sys.modules)") as process:
        assert reason in refusal(process.pid)
        assert process.finish() == "False\n"


# Which thread


def test_a_library_thread_is_taken_before_others_and_the_main_thread_last() -> None:
    program = f"""{FAKE_TORCH}
def named(name):
    ctypes.CDLL(None).prctl(15, name, 0, 0, 0)  # PR_SET_NAME
    threading.Event().wait()
for name in (b"worker", b"pt_nccl_heartbt", b"pt_gloo_runloop"):
    threading.Thread(target=named, args=(name,), daemon=True).start()
time.sleep(0.1)
{WAIT}
"""
    with asked(program) as process:
        names = [thread.name for thread in sleeping_threads(process.pid)]
        assert names[:3] == ["pt_gloo_runloop", "pt_nccl_heartbt", "worker"]
        assert sleeping_threads(process.pid)[3].thread_id == process.pid
        assert ask_it(process.pid).thread.startswith("pt_gloo_runloop (")


def test_a_sleeping_main_thread_sleeps_on() -> None:
    program = f"""{FAKE_TORCH}
print("ready", flush=True)
begin = time.monotonic()
time.sleep(1.5)
print(len(asked), time.monotonic() - begin >= 1.5)
"""
    with asked(program) as process:
        assert ask_it(process.pid).thread.endswith(f"({process.pid})")
        assert process.finish() == "1 True\n"


def test_a_thread_that_works_at_the_first_look_may_sleep_at_the_next() -> None:
    program = f"""{FAKE_TORCH}
import glob
print("ready", flush=True)
while not glob.glob("/tmp/{NAME_PREFIX}*"): pass
end = time.process_time() + 0.06
while time.process_time() < end: pass
{WAIT}
print(len(asked))
"""
    with asked(program) as process:
        assert ask_it(process.pid).dumps == {"c10d": GLOO}
        assert process.finish() == "ready\n1\n"


@pytest.mark.parametrize(
    "program",
    [
        "print('ready', flush=True)\nwhile True: pass",
        "import select\nprint('ready', flush=True)\nselect.epoll().poll()",
    ],
    ids=["at work", "in epoll"],
)
def test_without_a_thread_that_may_be_stopped_it_is_refused(program: str) -> None:
    with asked(program) as process:
        assert "no thread" in refusal(process.pid)
        assert process.process.poll() is None


# Whom it does not ask


def test_a_process_that_is_gone() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitpid(pid, 0)
    assert "is gone" in refusal(pid)


def test_a_process_that_has_ended_unnoticed() -> None:
    pid = os.posix_spawn("/bin/true", ["true"], {})
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    try:
        assert "is gone" in refusal(pid)
    finally:
        os.waitpid(pid, 0)


def test_a_stopped_process() -> None:
    with asked(FAKE_TORCH + SLEEPER + WAIT) as process:
        os.kill(process.pid, signal.SIGSTOP)
        wait_until(lambda: "T (stopped)" in Path(f"/proc/{process.pid}/status").read_text())
        assert "is stopped" in refusal(process.pid)
        os.kill(process.pid, signal.SIGCONT)
        process.finish()


def test_a_process_under_a_debugger() -> None:
    tracer = "import ctypes, sys; print(ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0), flush=True); input()"
    with asked(FAKE_TORCH + SLEEPER + WAIT) as process:
        command = [sys.executable, "-c", tracer, str(process.pid)]  # PTRACE_SEIZE, as strace does
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as debugger:
            assert debugger.stdout is not None
            assert debugger.stdout.readline() == b"0\n"
            assert f"process {debugger.pid} traces it already" in refusal(process.pid)
            debugger.communicate(b"\n")
        process.finish()


def test_a_process_that_is_not_python() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            assert "not a Python interpreter" in refusal(process.pid)
        finally:
            process.kill()


def test_libraries_that_are_not_what_they_should_be(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.so"
    wrong.write_bytes(b"\x7fELF")
    right = libraries()
    with asked(FAKE_TORCH + SLEEPER + WAIT) as process:
        for injector, code in ((wrong, right.code), (right.injector, wrong), (right.injector, tmp_path / "absent")):
            with pytest.raises(LiveDumpRefusedError):
                ask(process.pid, type(right)(injector=injector, code=code))
        process.finish()


# The interpreter lock


@pytest.mark.parametrize("looks", [[False], [None], [True, True, False]])
def test_a_lock_that_is_free_at_one_look_is_no_obstacle(looks: list[bool | None]) -> None:
    with asked(FAKE_TORCH + WAIT) as process:
        answer = ask(process.pid, libraries(), is_gil_held=iter(looks).__next__)
    assert answer.dumps == {"c10d": GLOO}


def test_a_lock_that_is_held_at_every_look_is_a_refusal() -> None:
    with asked(FAKE_TORCH + SLEEPER + WAIT + "print(len(asked))") as process:
        with pytest.raises(LiveDumpRefusedError, match="keeps the interpreter lock"):
            ask(process.pid, libraries(), is_gil_held=lambda: True)
        assert process.finish() == "0\n"


def test_a_request_that_waits_for_the_lock_is_given_up_without_harm() -> None:
    program = f"""{FAKE_TORCH}{SLEEPER}
print("ready", flush=True)
ctypes.PyDLL(None).usleep(2500000)  # a C function that keeps the lock
time.sleep(0.5)
print(len(asked), len(os.listdir("/proc/self/task")))
"""
    with asked(program) as process:
        begin = time.monotonic()
        with pytest.raises(LiveDumpTimeoutError, match="the interpreter lock is held"):
            ask_it(process.pid, timeout_s=1.0)
        assert 0.9 < time.monotonic() - begin < 2.0
        assert process.finish() == "0 2\n"  # it found that nobody waits any more, and ended


# The guardian: dl_iterate_phdr keeps a lock of the loader while it calls back, so that nothing can be loaded

HELD_LOADER = f"""{FAKE_TORCH}{SLEEPER}
callback = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 3)(lambda *_: time.sleep(2) or 1)
print("ready", flush=True)
ctypes.CDLL(None).dl_iterate_phdr(callback, None)
time.sleep(0.5)
print(len(asked), "code.so" in open("/proc/self/maps").read())
"""


def leave_a_guardian(pid: int) -> int:
    before = guardians()
    begin = time.monotonic()
    with pytest.raises(LiveDumpTimeoutError, match="did not take a library in") as caught:
        ask_it(pid, timeout_s=0.5)
    assert time.monotonic() - begin < 1.5
    (guardian,) = guardians() - before
    assert f"leave process {guardian} alone" in caught.value.advice
    return guardian


def test_the_guardian_stays_until_it_may_let_go_whatever_signal_comes() -> None:
    with asked(HELD_LOADER) as process:
        guardian = leave_a_guardian(process.pid)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
            os.kill(guardian, number)
        assert os.getsid(guardian) == guardian
        assert process.finish() == "0 False\n"
        assert wait_until(lambda: guardian not in guardians())


def test_the_guardian_ends_when_the_process_dies() -> None:
    with asked(HELD_LOADER) as process:
        guardian = leave_a_guardian(process.pid)
        os.kill(process.pid, signal.SIGKILL)
        assert wait_until(lambda: guardian not in guardians())


# Other Pythons, users and file systems

ASK = """
import sys
from pathlib import Path
from ncclprobe.probe.live_dump import InjectionLibraries, NcclprobeError, ask
try:
    print(ask(int(sys.argv[1]), InjectionLibraries(injector=Path(sys.argv[2]), code=Path(sys.argv[3]))).dumps)
except NcclprobeError as error:
    print(error, "|", error.advice)
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: other users and mount namespaces")
AS_NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")


def other_pythons() -> list[str]:
    """One interpreter per other minor version from 3.10 that is installed here, or that pyenv has."""
    own = f"3.{sys.version_info.minor}"
    versions = [f"3.{minor}" for minor in range(10, 20) if f"3.{minor}" != own]
    places = [Path(place) for place in os.get_exec_path()]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = {
        version: path
        for version in versions
        for path in [*(place / f"python{version}" for place in places), *pyenv.glob(f"{version}.*/bin/python")]
        if path.is_file() and path.parent.name != "shims"
    }
    return [str(path) for path in found.values()]


def system_python() -> str:
    """One that every user may run: the virtual environment may lie in a private home."""
    python = "/usr/bin/python3"
    check = "import sys; sys.exit(sys.version_info < (3, 10))"
    if not Path(python).exists() or subprocess.run([python, "-c", check]).returncode != 0:
        pytest.skip("needs a /usr/bin/python3 from 3.10")
    return python


@pytest.fixture
def open_copy() -> Iterator[Path]:
    """Package and libraries where every user may read them."""
    package = Path(ncclprobe.__file__).parent
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        shutil.copytree(package, f"{directory}/ncclprobe", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(libraries().injector, f"{directory}/injector.so")
        shutil.copy(libraries().code, f"{directory}/code.so")
        subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
        yield Path(directory)


def ask_as(command: list[str], pid: int, directory: Path) -> str:
    arguments = [str(pid), f"{directory}/injector.so", f"{directory}/code.so"]
    full = [*command, "-B", "-c", ASK, *arguments]
    return subprocess.run(full, capture_output=True, text=True, cwd=directory, timeout=30).stdout


@pytest.mark.skipif(not other_pythons(), reason="no other Python from 3.10 is installed")
def test_the_asker_may_run_another_python_than_the_process(open_copy: Path) -> None:
    with asked(FAKE_TORCH + WAIT) as process:
        for python in other_pythons():
            assert ask_as([python], process.pid, open_copy) == f"{ {'c10d': GLOO} }\n"
        process.finish()


@needs_root
def test_a_process_of_another_user() -> None:
    with asked(
        FAKE_TORCH + SLEEPER + WAIT + "print(os.geteuid())", wrapper=AS_NOBODY, python=system_python()
    ) as process:
        assert ask_it(process.pid).dumps == {"c10d": GLOO}
        assert process.finish() == "65534\n"


@needs_root
def test_an_ordinary_user_may_ask_only_its_own_processes(open_copy: Path) -> None:
    asker = [*AS_NOBODY, system_python()]
    with asked(FAKE_TORCH + WAIT, wrapper=AS_NOBODY, python=system_python()) as process:
        answer = ask_as(asker, process.pid, open_copy)
        assert answer == f"{ {'c10d': GLOO} }\n" or "ptrace_scope" in answer
        process.finish()
    with asked(FAKE_TORCH + WAIT, python=system_python()) as process:
        assert "belongs to another user (uid 0" in ask_as(asker, process.pid, open_copy)
        process.finish()


def in_container(setup: str, *, own_pids: bool = False) -> list[str]:
    """A shell that prepares a file system of its own and becomes the process."""
    pids = ["--pid", "--fork", "--mount-proc"] if own_pids else []
    return ["unshare", "--mount", *pids, "sh", "-c", f'set -e; {setup}; exec "$@"', "sh"]


@needs_root
@pytest.mark.parametrize("own_pids", [False, True])
def test_a_process_in_a_container(own_pids: bool) -> None:
    wrapper = in_container("mount -t tmpfs none /tmp", own_pids=own_pids)
    with asked(FAKE_TORCH + SLEEPER + WAIT + "print(os.listdir('/tmp'))", wrapper=wrapper) as process:
        assert ask_it(process.pid).dumps == {"c10d": GLOO}
        assert "code.so" not in Path(f"/proc/{process.pid}/maps").read_text()
        assert process.finish() == "[]\n"


NOEXEC = "mount -t tmpfs -o noexec none {}"


@needs_root
def test_a_directory_that_libraries_may_not_be_loaded_from_is_passed_over() -> None:
    setup = f"{NOEXEC.format('/tmp')}; {NOEXEC.format('/dev/shm')}; mount -t tmpfs none /var/tmp"
    with asked(FAKE_TORCH + WAIT, wrapper=in_container(setup)) as process:
        with private_directory(process.pid) as directory:
            assert directory.path.startswith("/var/tmp/")
        assert ask_it(process.pid).dumps == {"c10d": GLOO}
        process.finish()


@needs_root
def test_no_directory_to_load_from_is_a_refusal() -> None:
    setup = "; ".join(NOEXEC.format(place) for place in ("/tmp", "/dev/shm", "/var/tmp"))
    with asked(FAKE_TORCH + WAIT, wrapper=in_container(setup)) as process:
        assert "/var/tmp: mounted noexec" in refusal(process.pid)
        process.finish()


@needs_root
def test_links_in_the_processs_root_are_not_followed(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "root", tmp_path / "elsewhere"
    (root / "var").mkdir(parents=True)
    elsewhere.mkdir()
    (root / "tmp").symlink_to(elsewhere)
    (root / "dev").symlink_to(elsewhere.parent)
    (elsewhere / "shm").mkdir()
    program = f"import os, sys; os.chroot({str(root)!r})" + WAIT
    with asked(program) as process:
        with pytest.raises(NoDirectoryError), private_directory(process.pid):
            pass
        (root / "var/tmp").mkdir()
        with private_directory(process.pid) as directory:
            assert directory.path.startswith("/var/tmp/")
            assert len(list((root / "var/tmp").iterdir())) == 1
    assert not any((root / "var/tmp").iterdir())


# What a hostile process may leave


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    with private_directory(os.getpid()) as directory:
        place = Path(directory.path)
        assert stat.S_IMODE(place.stat().st_mode) == 0o700
        (place / "link").symlink_to(secret)
        os.mkfifo(place / "pipe")
        (place / "file").write_bytes(b"123456")
        assert directory.read("file", 4) == b"1234"
        for name in ("link", "pipe", "absent"):
            with pytest.raises(OSError, match=r"link|plain|No such|levels"):
                directory.read(name, 4)
    assert not place.exists()
    assert secret.read_text() == "secret"


@pytest.mark.parametrize(
    ("answer", "parts"),
    [
        (b"", []),
        (b"c10d 3\nabc", [("c10d", b"abc")]),
        (b"c10d 3\nabcnccl 1\nd", [("c10d", b"abc"), ("nccl", b"d")]),
        (b"c10d 3\nabcnccl 99\nd", [("c10d", b"abc")]),
        (b"c10d -1\nabc", []),
        (b"c10d 1e9\nabc", []),
        (b"\xff\xfe" * 99, []),
    ],
)
def test_a_cut_or_wrong_answer_ends_where_it_is_wrong(answer: bytes, parts: list[tuple[str, bytes]]) -> None:
    assert list(target_code.parts(answer)) == parts


@pytest.mark.parametrize(("answer", "number"), [(b"thread 2\n17", 17), (b"thread 1\nx", None), (b"", None)])
def test_a_number_in_the_answer(answer: bytes, number: int | None) -> None:
    assert target_code.number(answer, "thread") == number
