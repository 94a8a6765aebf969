"""What a host runs, from its first byte to the last: whatever ends it, no process and no file stays.

The kit is real; the job is a process that says it is rank 0 of a run of its own.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.collect import kit
from ncclprobe.probe import bootstrap
from ncclprobe.probe.selection import Selection
from ncclprobe.probe.source import Options
from ncclprobe.probe.stream import START_MARK
from tests.unit.probe.fake_proc import torchrun_environ
from tests.unit.probe.processes import installed_pythons, is_gone, running, wait_until

SLOW_SPY = "sleep\x00600\x00"
RUN_ID = f"bootstrap-{os.getpid()}"
PYTHONS = [Path(sys.executable), *installed_pythons(range(10, 15))]


@pytest.fixture(scope="module")
def kit_bytes() -> bytes:
    return kit.build(compressed=False)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """Where the probe may put its directory."""
    base = tmp_path / "tmp"
    base.mkdir()
    return base


def payload(kit_bytes: bytes, *, deadline_s: float = 30, **options: Any) -> bytes:
    body = {
        "host": "node1",
        "deadline_s": deadline_s,
        "options": asdict(Options(**{"interval_s": 0.1, **options})),
        "selection": asdict(Selection(job=RUN_ID)),
    }
    return kit.payload(kit_bytes, body)


class Run:
    """A bootstrap at work, in a session of its own."""

    def __init__(self, data: bytes, base: Path, python: Path = Path(sys.executable)) -> None:
        code = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline()))) # ncclprobe"
        self.process = subprocess.Popen(
            [str(python), "-ISBc", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(base)},
            start_new_session=True,
        )
        assert self.process.stdin
        self.base = base
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(data)
            self.process.stdin.flush()

    def family(self) -> set[int]:
        """Every process of it: they share its directory or descend from it."""
        found = {self.process.pid}
        for _ in range(4):
            for name in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError):
                    if int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1]) in found:
                        found.add(int(name))
        return found

    def wait_for_source(self) -> set[int]:
        """Until py-spy is at work: bootstrap, probe, worker, py-spy."""
        wait_until(lambda: any(command(pid) == SLOW_SPY for pid in self.family()), "py-spy is at work")
        return self.family()

    def output(self) -> bytes:
        assert self.process.stdout
        return self.process.stdout.read()

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


@pytest.fixture
def start(base: Path) -> Iterator[Callable[..., Run]]:
    runs: list[Run] = []

    def begin(data: bytes, python: Path = Path(sys.executable)) -> Run:
        runs.append(Run(data, base, python))
        return runs[-1]

    yield begin
    for run in runs:
        run.end()


@pytest.fixture
def rank() -> Iterator[int]:
    with running(environ=torchrun_environ(0, size=1, TORCHELASTIC_RUN_ID=RUN_ID)) as pid:
        yield pid


@pytest.fixture
def slow_kit(kit_bytes: bytes, tmp_path: Path) -> bytes:
    """A kit whose py-spy hangs, so that there is always something at work."""
    import io
    import zipfile

    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(kit_bytes)) as real, zipfile.ZipFile(buffer, "w") as archive:
        for name in real.namelist():
            archive.writestr(name, b"#!/bin/sh\nexec sleep 600\n" if name == "tools/py-spy" else real.read(name))
    return buffer.getvalue()


def host_document(output: bytes) -> dict[str, Any]:
    """`host.json`, the last member of the stream."""
    text = output[output.rindex(b'{"hostname"') :].split(b"\0", 1)[0]
    return json.loads(text)  # type: ignore[no-any-return]


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: path.name)
def test_a_whole_run_on_each_python(
    start: Callable[..., Run], kit_bytes: bytes, rank: int, base: Path, python: Path
) -> None:
    run = start(payload(kit_bytes), python)
    output = run.output()
    assert run.process.wait() == 0
    assert output.startswith(START_MARK)
    document = host_document(output)
    assert document["job"]["run_id"] == RUN_ID
    assert {source["name"]: source["outcome"] for source in document["sources"]}["stacks"] == "complete"
    assert not list(base.iterdir())


def test_the_directory_is_private(start: Callable[..., Run], slow_kit: bytes, rank: int, base: Path) -> None:
    run = start(payload(slow_kit))
    run.wait_for_source()
    (directory,) = base.iterdir()
    assert directory.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("victim", "number"),
    [
        *(("bootstrap", number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGKILL)),
        *(("probe", number) for number in (signal.SIGTERM, signal.SIGKILL)),
    ],
)
def test_a_signal_leaves_nothing(
    start: Callable[..., Run], slow_kit: bytes, rank: int, base: Path, victim: str, number: signal.Signals
) -> None:
    run = start(payload(slow_kit))
    family = run.wait_for_source()
    (probe,) = [pid for pid in family if "ncclprobe.probe.main" in command(pid) and parent_of(pid) == run.process.pid]
    os.kill(run.process.pid if victim == "bootstrap" else probe, number)
    run.process.wait(timeout=10)
    for pid in family:
        wait_until(lambda pid=pid: is_gone(pid), f"{command(pid)} has ended", 5)  # type: ignore[misc]
    wait_until(lambda: not list(base.iterdir()), "the directory is gone", 5)
    assert not is_gone(rank)


@pytest.mark.parametrize("delay_ms", [0, 40, 80, 120, 160, 220, 300])
def test_a_signal_at_any_moment_leaves_nothing(
    start: Callable[..., Run], slow_kit: bytes, rank: int, base: Path, delay_ms: int
) -> None:
    run = start(payload(slow_kit))
    time.sleep(delay_ms / 1000)
    family = run.family()
    run.process.terminate()
    run.process.wait(timeout=10)
    for pid in family:
        wait_until(lambda pid=pid: is_gone(pid), f"{command(pid)} has ended", 5)  # type: ignore[misc]
    wait_until(lambda: not list(base.iterdir()), "the directory is gone", 5)


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_the_end_of_input_ends_it_within_two_seconds(
    start: Callable[..., Run], slow_kit: bytes, rank: int, base: Path
) -> None:
    run = start(payload(slow_kit))
    family = run.wait_for_source()
    begin = time.monotonic()
    assert run.process.stdin
    run.process.stdin.close()
    run.process.wait(timeout=10)
    for pid in family:
        wait_until(lambda pid=pid: is_gone(pid), f"{pid} has ended", 5)  # type: ignore[misc]
    assert time.monotonic() - begin < 2
    assert not list(base.iterdir())


def test_the_end_of_who_reads_ends_it(start: Callable[..., Run], slow_kit: bytes, rank: int, base: Path) -> None:
    run = start(payload(slow_kit))
    family = run.wait_for_source()
    assert run.process.stdout
    run.process.stdout.close()
    assert run.process.wait(timeout=10) != 0
    for pid in family:
        wait_until(lambda pid=pid: is_gone(pid), f"{pid} has ended", 5)  # type: ignore[misc]
    assert not list(base.iterdir())


def test_what_a_kill_of_all_has_left_the_next_run_removes(
    start: Callable[..., Run], slow_kit: bytes, kit_bytes: bytes, rank: int, base: Path
) -> None:
    run = start(payload(slow_kit))
    family = run.wait_for_source()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # stopped first, so that none can clean up after another
        for pid in family:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
    run.process.wait()
    assert len(list(base.iterdir())) == 1
    alive = start(payload(slow_kit))
    alive.wait_for_source()
    healthy = start(payload(kit_bytes))
    assert host_document(healthy.output())["job"]
    assert healthy.process.wait(timeout=10) == 0
    (left,) = base.iterdir()
    assert str(left) in "".join(command(pid) for pid in alive.family()), "one that is at work keeps its directory"


def test_a_hanging_source_does_not_keep_the_rest_and_the_deadline_holds(
    start: Callable[..., Run], slow_kit: bytes, rank: int
) -> None:
    begin = time.monotonic()
    document = host_document(start(payload(slow_kit, deadline_s=2)).output())
    assert time.monotonic() - begin < 6
    outcomes = {source["name"]: source["outcome"] for source in document["sources"]}
    assert outcomes["stacks"] == "timed-out"
    assert outcomes["processes"] == outcomes["rank_log"] == "complete"
    assert [gap for gap in document["gaps"] if gap["what"] == "nothing of stacks"]


def test_another_architecture_does_without_the_tools(
    start: Callable[..., Run], kit_bytes: bytes, rank: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = payload(kit_bytes).replace(b'"machine": "', b'"machine": "x')
    monkeypatch.setenv("PATH", "/nowhere")
    document = host_document(start(data).output())
    (gap,) = [gap for gap in document["gaps"] if gap["what"] == "no stacks"]
    assert "architecture" in gap["why"]


@pytest.mark.parametrize(
    ("data", "word"),
    [(b'{"kit_bytes": 9}\nshort', "EOFError"), (b"{\n", "JSONDecodeError"), (b'{"kit_bytes": 1}\nx', "KeyError")],
)
def test_what_stands_in_its_way_is_one_line(start: Callable[..., Run], data: bytes, word: str, base: Path) -> None:
    text = Path(bootstrap.__file__).read_bytes()
    run = start(b"%d\n" % len(text) + text + data)
    assert run.process.stdin
    run.process.stdin.close()
    assert run.process.stderr
    assert run.process.wait(timeout=10) == 1
    (line,) = run.process.stderr.read().decode().splitlines()
    assert line.startswith(f"ncclprobe: {word}")
    assert not list(base.iterdir())


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_a_tmp_whose_files_may_not_be_executed_is_not_used(tmp_path: Path) -> None:
    code = (
        "import os; from ncclprobe.probe.bootstrap import _roomy_directory; "
        "os.environ['TMPDIR'] = os.environ['BAD']; print(_roomy_directory())"
    )
    script = 'mount -t tmpfs -o noexec x "$BAD" && exec "$0" -c "$1"'
    chosen = subprocess.check_output(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, code],
        env={**os.environ, "BAD": str(tmp_path)},
        text=True,
    ).strip()
    assert chosen != str(tmp_path)
    assert os.access(chosen, os.W_OK)
