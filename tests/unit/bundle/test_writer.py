import hashlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.bundle import BundleWriter, open_bundle
from ncclprobe.bundle import writer as writer_module
from ncclprobe.bundle.manifest import from_json
from ncclprobe.model.errors import BundleError, UsageError
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.manifest import HostOutcome, Manifest, Outcome

NAMES = ["bundle", "bundle.tar", "bundle.tgz", "bundle.tar.gz"]


def stacks(host: str = "node1", path: str = "stacks/rank0.json") -> Artifact:
    return Artifact(path=path, kind=Kind.STACKS, host=host, origin="py-spy dump")


def host(name: str) -> HostOutcome:
    return HostOutcome(name=name, address=name, outcome=Outcome.COMPLETE)


def create(path: Path) -> BundleWriter:
    return BundleWriter.create(path, "0.1.0", None, None)


def on_disk(directory: Path) -> Manifest:
    return from_json((directory / "manifest.json").read_text())


def test_an_artifact_gets_its_place_size_and_sum(tmp_path: Path) -> None:
    with create(tmp_path / "b") as writer:
        added = writer.add(stacks(), [b"ab", b"", b"c"])
    assert added.path == "hosts/node1/stacks/rank0.json"
    assert (added.size_bytes, added.sha256) == (3, hashlib.sha256(b"abc").hexdigest())
    assert added.truncated is False
    assert (tmp_path / "b" / added.path).read_bytes() == b"abc"
    assert on_disk(tmp_path / "b").items == (added,)


def test_what_the_probe_says_is_truncated_stays_so(tmp_path: Path) -> None:
    with create(tmp_path / "b") as writer:
        cut = Artifact(path="gpu/x", kind=Kind.GPU, host="n", origin="nvml", truncated=True)
        assert writer.add(cut, [b"x"]).truncated is True


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("hosts/elsewhere/stacks/a.json", "hosts/node1/stacks/a.json"),
        ("a.json", "hosts/node1/stacks/a.json"),
        ("/etc/passwd", "hosts/node1/etc/passwd"),
        ("../../../root/.ssh/keys", "hosts/node1/_./_._.._root_.ssh_keys"),
        ("stacks/a/../b\n", "hosts/node1/stacks/a_.._b_"),
        ("", "hosts/node1/stacks/_"),
        ("hosts", "hosts/node1/stacks/_"),
        ("stacks/" + "x" * 5000, "hosts/node1/stacks/" + "x" * 100),
    ],
)
def test_any_path_from_a_host_ends_up_inside(tmp_path: Path, path: str, place: str) -> None:
    with create(tmp_path / "b") as writer:
        assert writer.add(stacks(path=path), [b"x"]).path == place
    with open_bundle(tmp_path / "b") as bundle:
        assert [item.path for item in bundle.manifest.items] == [place]
        assert bundle.gaps == ()


def test_equal_names_get_numbers(tmp_path: Path) -> None:
    with create(tmp_path / "b") as writer:
        paths = [writer.add(stacks(host=name), [name.encode()]).path for name in ("n/1", "n:1", "n/1", "N_1")]
    assert paths == [
        "hosts/n_1/stacks/rank0.json",
        "hosts/n_1-2/stacks/rank0.json",
        "hosts/n_1/stacks/rank0.json-2",
        "hosts/N_1-3/stacks/rank0.json",
    ]


@pytest.mark.parametrize("error", [ConnectionError("gone"), KeyboardInterrupt()])
def test_a_source_that_breaks_off_keeps_what_came(tmp_path: Path, error: BaseException) -> None:
    def chunks() -> Iterator[bytes]:
        yield b"half"
        raise error

    with create(tmp_path / "b.tgz") as writer, pytest.raises(type(error)):
        writer.add(stacks(), chunks())
    with open_bundle(tmp_path / "b.tgz") as bundle:
        (item,) = bundle.manifest.items
        assert item.truncated is True
        assert bundle.read(item) == b"half"
        assert bundle.gaps == ()


@pytest.mark.parametrize("name", NAMES)
def test_ctrl_c_leaves_a_bundle_and_nothing_else(tmp_path: Path, name: str) -> None:
    def interrupted() -> None:
        with create(tmp_path / name) as writer:
            writer.add(stacks(), [b"x"])
            writer.add_host(host("node1"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with open_bundle(tmp_path / name) as bundle:
        assert [bundle.read(item) for item in bundle.manifest.items] == [b"x"]
        assert bundle.manifest.hosts == (host("node1"),)
        assert bundle.gaps == ()
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_artifact_still_coming_in_at_the_end_is_cut_off(tmp_path: Path) -> None:
    is_started, goes_on, caught = threading.Event(), threading.Event(), []

    def chunks() -> Iterator[bytes]:
        yield b"early"
        is_started.set()
        goes_on.wait(10)
        yield b"late"

    def add() -> None:
        try:
            writer.add(stacks(), chunks())
        except BundleError as error:
            caught.append(error)

    with create(tmp_path / "b.tgz") as writer:
        thread = threading.Thread(target=add)
        thread.start()
        assert is_started.wait(10)
    goes_on.set()
    thread.join(10)
    assert len(caught) == 1
    with pytest.raises(BundleError, match="closed"):
        writer.add(stacks(), [b"x"])
    with open_bundle(tmp_path / "b.tgz") as bundle:
        (item,) = bundle.manifest.items
        assert (bundle.read(item), item.truncated, bundle.gaps) == (b"early", True, ())


def test_many_hosts_write_at_once(tmp_path: Path) -> None:
    def collect(number: int) -> None:
        for look in range(20):
            data = [b"%d-%d" % (number, look)] * 50
            writer.add(stacks(host=f"node{number}", path=f"stacks/{look}.json"), iter(data))
        writer.add(stacks(host="shared"), [b"%d" % number])
        writer.add_host(host(f"node{number}"))

    with create(tmp_path / "b.tar") as writer:
        threads = [threading.Thread(target=collect, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    with open_bundle(tmp_path / "b.tar") as bundle:
        assert bundle.gaps == ()
        assert len(bundle.manifest.items) == 8 * 21
        assert [outcome.name for outcome in bundle.manifest.hosts] == [f"node{number}" for number in range(8)]
        for item in bundle.manifest.items:
            if item.host != "shared":
                data = f"{item.host.removeprefix('node')}-{Path(item.path).stem}".encode()
                assert bundle.read(item) == data * 50
        shared = [item for item in bundle.manifest.items if item.host == "shared"]
        assert sorted(bundle.read(item) for item in shared) == [b"%d" % number for number in range(8)]


def test_the_manifest_on_disk_follows_hosts_at_once_and_items_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create(tmp_path / "b") as writer:
        assert on_disk(tmp_path / "b").items == ()
        writer.add(stacks(), [b"x"])
        writer.add_host(host("node1"))
        assert on_disk(tmp_path / "b").hosts == (host("node1"),)
        assert len(on_disk(tmp_path / "b").items) == 1
        writer.add(stacks(), [b"y"])
        assert len(on_disk(tmp_path / "b").items) == 1
        monkeypatch.setattr(writer_module, "_ITEM_PERIOD_S", 0.0)
        writer.add(stacks(), [b"z"])
        assert len(on_disk(tmp_path / "b").items) == 3
        writer.set_job("run-9")
        assert on_disk(tmp_path / "b").job == "run-9"


def test_a_slow_manifest_is_not_written_for_every_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(tmp_path / "b") as writer:
        monkeypatch.setattr(writer, "_writing_took_s", 60.0)
        writer.add_host(host("node1"))
        assert on_disk(tmp_path / "b").hosts == ()
    assert on_disk(tmp_path / "b").hosts == (host("node1"),)


def test_a_later_outcome_of_a_host_replaces_the_earlier(tmp_path: Path) -> None:
    failed = HostOutcome(name="node1", address="node1", outcome=Outcome.FAILED)
    with create(tmp_path / "b") as writer:
        writer.add_host(host("node1"))
        writer.add_host(failed)
    assert on_disk(tmp_path / "b").hosts == (failed,)


@pytest.mark.parametrize("name", NAMES)
def test_nobody_else_can_read_a_bundle(tmp_path: Path, name: str) -> None:
    old_mask = os.umask(0)
    try:
        with create(tmp_path / name) as writer:
            writer.add(stacks(), [b"x"])
            while_collecting = [path for path in tmp_path.rglob("*") if path.lstat().st_mode & 0o077]
    finally:
        os.umask(old_mask)
    assert while_collecting == []
    assert [path for path in tmp_path.rglob("*") if path.lstat().st_mode & 0o077] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_parent_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="No such file"):
        create(tmp_path / "missing" / name)


def test_an_empty_directory_is_used_and_a_full_one_refused(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    create(tmp_path / "b").close()
    with pytest.raises(UsageError, match="not empty"):
        create(tmp_path / "b")


@pytest.mark.parametrize("name", NAMES)
def test_an_existing_file_is_never_overwritten(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        create(tmp_path / name)
    assert (tmp_path / name).read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 1


def test_an_archive_that_cannot_be_written_tells_where_the_evidence_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writer_module, "pack", fail)
    writer = create(tmp_path / "b.tgz")
    writer.add(stacks(), [b"x"])
    with pytest.raises(BundleError, match="No space left") as caught:
        writer.close()
    (left,) = tmp_path.iterdir()
    assert str(left) in caught.value.advice
    with open_bundle(left) as bundle:
        assert [bundle.read(item) for item in bundle.manifest.items] == [b"x"]


def test_a_bundle_takes_no_more_than_can_be_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_module, "_MAX_BYTES", 10)
    monkeypatch.setattr(writer_module, "_MAX_ITEMS", 2)
    with create(tmp_path / "b") as writer:
        with pytest.raises(BundleError, match="10 bytes"):
            writer.add(stacks(), iter(lambda: b"endless", b""))
        writer.add(stacks(), [])
        with pytest.raises(BundleError, match="2 files"):
            writer.add(stacks(), [])
    assert [item.truncated for item in on_disk(tmp_path / "b").items] == [True, False]


@pytest.mark.parametrize("name", ["b", "b.tgz"])
def test_a_killed_collection_leaves_a_readable_directory(tmp_path: Path, name: str) -> None:
    program = (
        "import sys, time; from pathlib import Path; from ncclprobe.bundle import BundleWriter\n"
        "from ncclprobe.model.evidence import Artifact, Kind\n"
        "from ncclprobe.model.manifest import HostOutcome, Outcome\n"
        "writer = BundleWriter.create(Path(sys.argv[1]), '0.1.0', None, None)\n"
        "writer.add(Artifact(path='gpu/x', kind=Kind.GPU, host='n', origin='nvml'), [b'x'])\n"
        "writer.add_host(HostOutcome(name='n', address='n', outcome=Outcome.COMPLETE))\n"
        "def chunks():\n"
        "    yield b'y'\n"
        "    print('ready', flush=True)\n"
        "    time.sleep(60)\n"
        "writer.add(Artifact(path='gpu/y', kind=Kind.GPU, host='n', origin='nvml'), chunks())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / name)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    (left,) = tmp_path.iterdir()
    assert left.name == "b" or left.name.startswith("b.tgz.partial-")
    with open_bundle(left) as bundle:
        assert [bundle.read(item) for item in bundle.manifest.items] == [b"x"]
        assert [gap.what for gap in bundle.gaps] == ["'hosts/n/gpu/y'"]


def test_large_collections_close_quickly(tmp_path: Path) -> None:
    start_s = time.monotonic()
    with create(tmp_path / "b.tar") as writer:
        for number in range(2000):
            writer.add(stacks(host=f"n{number // 20}"), [b"x"])
    assert time.monotonic() - start_s < 60
