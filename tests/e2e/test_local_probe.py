"""The whole way on this machine, with the real kit and real processes: evidence, ambiguity, interruption, no traces."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ncclprobe.bundle.reader import open_bundle
from ncclprobe.model.evidence import Kind
from ncclprobe.model.manifest import Manifest, Outcome
from tests.unit.probe.fake_proc import torchrun_environ
from tests.unit.probe.processes import running, wait_until

pytestmark = pytest.mark.e2e

RANK = """
import time
def wait_for_peers():
    print("ready", flush=True)
    time.sleep(600)
wait_for_peers()
"""


class Host:
    """This machine, with a temporary directory and a mark of its own in the environment of all that is started."""

    def __init__(self, folder: Path) -> None:
        self.mark = f"NCCLPROBE_TEST={uuid.uuid4().hex}"
        self.tmp = folder / "tmp"
        self.tmp.mkdir()
        self.bundle = folder / "bundle"
        name, value = self.mark.split("=")
        self.environ = {**os.environ, "TMPDIR": str(self.tmp), name: value}

    def start(self, *arguments: str, command: str = "collect") -> "subprocess.Popen[str]":
        code = "from ncclprobe.cli.main import main; main()"
        options = ("-o", str(self.bundle), "--interval", "0.2", *arguments)
        return subprocess.Popen(
            [sys.executable, "-c", code, command, *options],
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit status and standard error."""
        with self.start(*arguments) as process:
            _, error = process.communicate(timeout=60)
            return process.returncode, error

    def processes(self) -> list[int]:
        """What carries the mark and lives."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                    found.append(int(name))
        return found

    def assert_clean(self, within_s: float = 5) -> None:
        wait_until(lambda: not self.processes(), "all processes have ended", within_s)
        assert not list(self.tmp.iterdir())

    def manifest(self) -> Manifest:
        with open_bundle(self.bundle) as bundle:
            return bundle.manifest


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[str]:
    """Two ranks that wait; their program is a file, their output goes to files."""
    run_id = f"local-{uuid.uuid4().hex[:8]}"
    program = tmp_path / "train.py"
    program.write_text(RANK)
    with ExitStack() as stack:
        for rank in (0, 1):
            environ = torchrun_environ(rank, size=2, TORCHELASTIC_RUN_ID=run_id)
            log = stack.enter_context((tmp_path / f"rank{rank}.err").open("w"))
            log.write(f"rank {rank} says so\n")
            log.flush()
            command = (sys.executable,)
            stack.enter_context(running(str(program), environ=environ, command=command, stderr=log))
        yield run_id


def test_evidence_of_every_kind_and_no_trace(host: Host, job: str) -> None:
    status, error = host.run("--job", job)
    assert (status, "evidence is in" in error) == (0, True), error
    host.assert_clean(within_s=1)
    manifest = host.manifest()
    (outcome,) = manifest.hosts
    assert outcome.outcome is Outcome.COMPLETE
    assert {source.outcome for source in outcome.sources} == {Outcome.COMPLETE}
    items = {(str(item.kind), item.rank, item.look) for item in manifest.items}
    assert {("stacks", rank, look) for rank in (0, 1) for look in (1, 2)} <= items
    assert {("rank-log", rank, None) for rank in (0, 1)} <= items
    assert {str(Kind.PROCESSES), str(Kind.USER_CODE)} <= {kind for kind, *_ in items}
    with open_bundle(host.bundle) as bundle:
        by_path = {item.path: bundle.read(item) for item in manifest.items}
    assert by_path["hosts/localhost/rank_log/rank1.stderr.log"] == b"rank 1 says so\n"
    assert RANK.encode() in by_path.values()


def test_a_name_that_no_job_has_lists_the_jobs_there_are(host: Host, job: str) -> None:
    status, error = host.run("--job", "no-such-job")
    assert status == 2
    assert job in error
    gaps = host.manifest().hosts[0].gaps
    (gap,) = [gap for gap in gaps if gap.what == "no rank of the job"]
    assert "nothing here matches --job no-such-job" in gap.why
    assert job in gap.why


def test_two_jobs_are_an_error_that_names_them(host: Host, job: str) -> None:
    with running(environ=torchrun_environ(0, size=1, TORCHELASTIC_RUN_ID="other-job")):
        status, error = host.run()
    assert status == 2
    assert job in error
    assert "other-job" in error
    assert "choose one with --job" in error
    host.assert_clean(within_s=1)


def test_by_the_pid_of_a_rank(host: Host, job: str) -> None:
    with running(environ=torchrun_environ(3, size=8, TORCHELASTIC_RUN_ID="by-pid")) as pid:
        status, error = host.run("--pid", str(pid))
    assert status == 0, error
    assert str(host.manifest().job).startswith("by-pid")


def test_a_shell_with_a_rank_of_its_own_does_not_make_us_one(host: Host, job: str) -> None:
    """As in `srun --pty`, or in a terminal opened inside a rank."""
    host.environ |= torchrun_environ(0, size=2, TORCHELASTIC_RUN_ID=job)
    status, error = host.run("--job", job)
    assert status == 0, error
    with open_bundle(host.bundle) as bundle:
        (item,) = [item for item in bundle.manifest.items if item.kind is Kind.PROCESSES]
        found = json.loads(bundle.read(item))["processes"]
    assert [process["rank"] for process in found if process["role"] == "rank"] == [0, 1]
    assert not [process for process in found if "ncclprobe" in process["command"]]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whatever_ends_the_controller_the_probe_ends_too(host: Host, job: str, number: signal.Signals) -> None:
    process = host.start("--job", job, "--interval", "20")
    with process:
        wait_until(lambda: any("ncclprobe-" in name for name in os.listdir(host.tmp)), "the probe is at work", 20)
        wait_until(lambda: len(list(host.bundle.glob("hosts/*/stacks/*"))) >= 2, "evidence has come", 20)
        process.send_signal(number)
        begin = time.monotonic()
        process.communicate(timeout=20)
    wait_until(lambda: not host.processes(), "all processes have ended", 5)
    assert time.monotonic() - begin < 5
    wait_until(lambda: not list(host.tmp.iterdir()), "the probe's directory is gone", 2)
    manifest = host.manifest()
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert [gap.why for gap in manifest.hosts[0].gaps] == ["the collection was interrupted"]
        assert len(manifest.items) >= 2


def test_the_deadline_holds_with_an_interval_that_does_not_fit(host: Host, job: str) -> None:
    begin = time.monotonic()
    status, error = host.run("--job", job, "--deadline", "4", "--interval", "1.9")
    assert status == 0, error
    assert time.monotonic() - begin < 8
    host.assert_clean(within_s=1)
