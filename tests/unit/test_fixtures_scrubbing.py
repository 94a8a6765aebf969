"""Recorded evidence keeps what is the job's own and names nothing of the machine that it was recorded on."""

import getpass
import platform
import re
import socket
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from fixtures import make
from fixtures.recorded import rewrite
from fixtures.scrubbing import JOB, Scrub
from ncclprobe.bundle.reader import open_bundle
from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.manifest import HostOutcome, Outcome
from ncclprobe.parse import data_pickle
from tests.dumps import call, dump, frame

FIXTURES = Path(make.__file__).parent
BUNDLES = sorted(FIXTURES.glob("*/*.tar.gz"))
SCRUB = Scrub({"/tmp/ncclprobe-demo-1": JOB, "demo-1": "demo-fixture"}, [4711])

# What may stand in a fixture; everything else that has the form of a name is taken for one of a machine.
PATHS = re.compile(
    rf"(?:{JOB}|/home/user|/opt/(?:venv|python|src|conda)|/workspace|/(?:proc|sys|dev|usr|lib|etc)|/pytorch|/__w/pytorch)\b"
)
HOSTS = re.compile(r"localhost|(?:node|host)\d+")
ADDRESSES = re.compile(r"127\.|10\.|0\.0\.0\.0|192\.0\.2\.")

A_PATH = re.compile(r"(?<![\w.:/})*>-])/(?:[A-Za-z_][\w.@+-]*/)+[\w.@+-]+")
AN_ADDRESS = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.]*\w)|(?<![\w:])f[cde][0-9a-f]{2}:[0-9a-f:]+")
A_USER = re.compile(r'"user": "([^"]*)"')
A_RUN_ID = re.compile(r"-[0-9a-f]{12}\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")
A_FREE_NAME = re.compile(r"/tmp/ncclprobe-|Linux version|BOOT_IMAGE")


def names_in(text: str) -> Iterator[str]:
    """Whatever names a machine, its directories or its users."""
    yield from (name for name in A_PATH.findall(text) if not PATHS.match(name))
    yield from (name for name in AN_ADDRESS.findall(text) if not ADDRESSES.match(name))
    yield from (name for name in A_USER.findall(text) if name != "user")
    yield from (*A_RUN_ID.findall(text), *A_FREE_NAME.findall(text))


def members(path: Path) -> Iterator[tuple[str, str]]:
    """Of an archive, the bytes one to one as characters."""
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is not None:
                yield member.name, file.read().decode("latin-1")


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.parent.name)
def test_no_file_of_a_fixture_names_a_machine(path: Path) -> None:
    found = {name: sorted({*names_in(text), *names_in(name)}) for name, text in members(path)}
    assert not {name: names for name, names in found.items() if names}
    with open_bundle(path) as bundle:
        assert all(HOSTS.fullmatch(item.host) for item in bundle.manifest.items)
        assert bundle.gaps == ()


def test_fixtures_are_small() -> None:
    sizes = {path.parent.name: path.stat().st_size for path in BUNDLES}
    assert {name: size for name, size in sizes.items() if size > 130_000} == {}
    assert sum(sizes.values()) < 4_000_000


@pytest.mark.parametrize(
    "text",
    [
        "/tmp/ncclprobe-demo-1/train.py",
        "/home/someone/train.py",
        "bound to 172.17.0.2:29500",
        "[fe80::1]:29500",
        '"user": "someone"',
        "demo-0123456789ab",
    ],
)
def test_what_names_a_machine_is_found(text: str) -> None:
    assert list(names_in(text))


def test_directories_of_the_job_and_of_the_interpreter_are_replaced() -> None:
    stack = f"/tmp/ncclprobe-demo-1/train.py {sys.prefix}/lib/torch/x.py demo-1 {Path(make.__file__).parents[1]}/a.py"
    assert SCRUB.text(f"{tempfile.gettempdir()}/ncclprobe-de") == JOB
    assert SCRUB.text(stack) == f"{JOB}/train.py /opt/venv/lib/torch/x.py demo-fixture /opt/src/a.py"


def test_hosts_users_kernels_and_addresses_are_replaced() -> None:
    host = socket.gethostname()
    assert SCRUB.text(f"host : {host}\n[{host}]:29500 {host}_123_0 x-{host}") == (
        f"host : localhost\n[localhost]:29500 localhost_123_0 x-{host}"
    )
    assert SCRUB.text(f'"user": "{getpass.getuser()}"') == '"user": "user"'
    assert SCRUB.text(platform.release()) == "6.1.0"
    assert SCRUB.text("127.0.0.1 10.77.0.1 172.17.0.2 v1.2.3.4") == "127.0.0.1 10.77.0.1 192.0.2.1 v1.2.3.4"
    assert SCRUB.text("[fd12:3456::2]:29500 at 20:24:55") == "[2001:db8::1]:29500 at 20:24:55"


def test_of_the_kernels_log_only_the_lines_of_the_jobs_ranks_stay() -> None:
    killed = "2026-09-01T00:00:01,4711+00:00 Out of memory: Killed process 4711 (python) total-vm:1kB\n"
    log = f"[ 4711.000] Linux version 6\n{killed}[ 5.0] segfault at 47110 in other[815]\n"
    assert SCRUB.of_the_job(log) == killed


def artifact(path: str, kind: Kind, host: str = "localhost") -> Artifact:
    return Artifact(path=f"hosts/{host}/{path}", kind=kind, host=host, origin="/tmp/ncclprobe-demo-1/x", rank=0)


def test_a_bundle_is_rewritten_with_its_sums(tmp_path: Path) -> None:
    recorder = dump([call("all_reduce", frames=[frame("main", "/tmp/ncclprobe-demo-1/train.py", 5)])])
    foreign = Gap(who="localhost", what="x", why="9 Python processes could not be looked into: no right", action="a")
    with BundleWriter.create(tmp_path / "raw", "1.0", "demo-1", 1.0) as writer:
        writer.add(artifact("live_dump/rank0.dump", Kind.FLIGHT_RECORDER), [recorder])
        writer.add(artifact("kernel_log/kernel.log", Kind.KERNEL_LOG), [b"[ 1.0] of another job\n"])
        writer.add(artifact("nic/ports.json", Kind.NIC), [b"{}"])
        writer.add(artifact("nic/ports.json", Kind.NIC, host="node1"), [b"{}"])
        writer.add_host(HostOutcome(name="localhost", address="localhost", outcome=Outcome.COMPLETE, gaps=(foreign,)))
    rewrite(tmp_path / "raw", tmp_path / "clean.tar.gz", SCRUB)
    with open_bundle(tmp_path / "clean.tar.gz") as bundle:
        assert bundle.gaps == ()
        assert (bundle.manifest.job, bundle.manifest.hosts[0].gaps) == ("demo-fixture", ())
        data_of = {item.path: bundle.read(item) for item in bundle.manifest.items}
    assert sorted(data_of) == [
        "hosts/localhost/kernel_log/kernel.log",
        "hosts/localhost/live_dump/rank0.dump",
        "hosts/node1/nic/ports.json",
    ]
    assert data_of["hosts/localhost/kernel_log/kernel.log"] == b""
    loaded = data_pickle.load(data_of["hosts/localhost/live_dump/rank0.dump"])
    assert loaded["entries"][0]["frames"][0]["filename"] == f"{JOB}/train.py"


def test_the_logs_of_a_job_that_has_ended_keep_their_places(tmp_path: Path) -> None:
    log = tmp_path / "raw/logs/demo-1_x/attempt_0/1/stderr.log"
    log.parent.mkdir(parents=True)
    log.write_text('  File "/tmp/ncclprobe-demo-1/train.py", line 5\n')
    rewrite(tmp_path / "raw", tmp_path / "clean.tar.gz", SCRUB)
    with open_bundle(tmp_path / "clean.tar.gz") as bundle:
        (item,) = bundle.manifest.items
        assert item.path == "hosts/localhost/logs/demo-fixture_x/attempt_0/1/stderr.log"
        assert bundle.read(item).decode() == f'  File "{JOB}/train.py", line 5\n'
