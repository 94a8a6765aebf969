import dataclasses
import gzip
import io
import json
import os
import shutil
import socket
import subprocess
import tarfile
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ncclprobe.bundle import Bundle, is_bundle, open_bundle
from ncclprobe.bundle.store import Limits
from ncclprobe.model.errors import BundleError, UsageError
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.manifest import Outcome

Make = Callable[[str], Path]
Pack = Callable[..., Path]

NAMES = ["bundle", "bundle.tar", "bundle.tgz"]
MANIFEST = json.dumps(
    {
        "schema_version": "1",
        "tool_version": "0.1.0",
        "created_ns": 5,
        "job": None,
        "hosts": [],
        "items": [{"path": "hosts/n/gpu/x", "kind": "gpu", "host": "n", "origin": "nvml", "size_bytes": 1}],
    }
).encode()
GOOD = [("manifest.json", MANIFEST), ("hosts/n/gpu/x", b"x")]


def contents(bundle: Bundle) -> dict[str, bytes]:
    return {item.path: bundle.read(item) for item in bundle.manifest.items}


def reasons(bundle: Bundle) -> str:
    return " | ".join(f"{gap.what}: {gap.why}" for gap in bundle.gaps)


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_directory_and_archives_read_the_same(make_bundle: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.time_ns", lambda: 1_700_000_000_000_000_000)
    seen = []
    for name in NAMES:
        with open_bundle(make_bundle(name)) as bundle:
            assert bundle.gaps == ()
            assert len(bundle.manifest.hosts) == 2
            seen.append((bundle.manifest, contents(bundle)))
    assert seen[0] == seen[1] == seen[2]
    assert len(seen[0][1]) == 4


def test_an_archive_is_known_by_content_not_by_name(make_bundle: Make, tmp_path: Path) -> None:
    for source, name in (("a.tgz", "report.pdf"), ("b.tar", "b.tar.gz")):
        renamed = make_bundle(source).rename(tmp_path / name)
        assert is_bundle(renamed)
        with open_bundle(renamed) as bundle:
            assert (len(bundle.manifest.items), bundle.gaps) == (4, ())


@pytest.mark.parametrize("arguments", [["-C", "bundle", "."], ["bundle"], ["bundle/hosts", "bundle/manifest.json"]])
def test_a_directory_packed_by_hand_reads_the_same(make_bundle: Make, tmp_path: Path, arguments: list[str]) -> None:
    directory = make_bundle("bundle")
    with tarfile.open(tmp_path / "hand.tgz", "w:gz") as archive:
        if arguments[0] == "-C":
            archive.add(directory, ".")
        for argument in arguments if arguments[0] != "-C" else []:
            archive.add(tmp_path / argument, argument)
    assert is_bundle(tmp_path / "hand.tgz")
    with open_bundle(directory) as one, open_bundle(tmp_path / "hand.tgz") as other:
        assert (one.manifest, contents(one)) == (other.manifest, contents(other))
        assert other.gaps == ()


def test_reading_from_threads_gives_the_same_bytes(make_bundle: Make) -> None:
    with open_bundle(make_bundle("b.tgz")) as bundle:
        expected, seen = contents(bundle), []
        threads = [threading.Thread(target=lambda: seen.append(contents(bundle))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        assert seen == [expected] * 8


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_behind(make_bundle: Make, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path, temporary = make_bundle(name), tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    before = len(os.listdir("/proc/self/fd"))
    with open_bundle(path) as bundle:
        contents(bundle)
        assert list(temporary.iterdir()) == []
    is_bundle(path)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("name", NAMES)
def test_read_refuses_what_is_too_long_absent_or_too_late(make_bundle: Make, name: str) -> None:
    with open_bundle(make_bundle(name)) as bundle:
        item = bundle.manifest.items[0]
        assert len(bundle.read(item, max_bytes=10240)) == 10240
        with pytest.raises(BundleError, match="10240 bytes; at most 10239"):
            bundle.read(item, max_bytes=10239)
        with pytest.raises(BundleError, match="not in the bundle"):
            bundle.read(dataclasses.replace(item, path="hosts/../../etc/passwd"))
    with pytest.raises(BundleError, match="closed"):
        bundle.read(item)


# --- bundles that have suffered -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["b.tar", "b.tgz"])
def test_a_truncated_archive_is_read_as_far_as_it_goes(make_bundle: Make, name: str) -> None:
    path = make_bundle(name)
    with open_bundle(path) as whole:
        expected = contents(whole)
    # Cut within the last file but the end marker: the largest one comes first.
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])
    with open_bundle(path) as bundle:
        assert "the rest of the archive: the archive is truncated" in reasons(bundle)
        assert len(bundle.manifest.hosts) == 2
        for item in bundle.manifest.items:
            assert expected[item.path].startswith(bundle.read(item))
            assert item.truncated == (bundle.read(item) != expected[item.path])


def test_a_cut_file_is_marked_as_truncated(pack_tar: Pack) -> None:
    text = MANIFEST.replace(b'"size_bytes": 1', b'"size_bytes": 3000')
    path = pack_tar([("manifest.json", text), ("hosts/n/gpu/x", bytes(range(250)) * 12)], "w")
    path.write_bytes(path.read_bytes()[: 512 * 3 + 700])
    with open_bundle(path) as bundle:
        (item,) = bundle.manifest.items
        assert item.truncated is True
        assert bundle.read(item) == (bytes(range(250)) * 12)[:700]
        assert {gap.who for gap in bundle.gaps} == {"bundle", "n"}


@pytest.mark.parametrize("as_archive", [False, True])
def test_missing_and_changed_and_unlisted_files_are_gaps(make_bundle: Make, tmp_path: Path, as_archive: bool) -> None:
    path = make_bundle("b")
    (path / "hosts/node1/stacks/rank0.json").unlink()
    (path / "hosts/node2/stacks/rank1.json").write_bytes(b"more")
    dmesg = path / "hosts/node2/kernel-log/dmesg.txt"
    dmesg.write_bytes(dmesg.read_bytes().replace(b"12", b"21"))
    (path / "hosts/node2/core").write_bytes(b"?")
    if as_archive:
        with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
            archive.add(path, "b")
        path = tmp_path / "b.tgz"
    with open_bundle(path) as bundle:
        assert len(bundle.manifest.items) == 3
        assert [(gap.who, gap.what) for gap in bundle.gaps] == [
            ("bundle", "'hosts/node2/core'"),
            ("node1", "'hosts/node1/stacks/rank0.json'"),
            ("node2", "'hosts/node2/kernel-log/dmesg.txt' and 1 more"),
        ]
        assert b"process 21" in contents(bundle)["hosts/node2/kernel-log/dmesg.txt"]


@pytest.mark.parametrize("as_archive", [False, True])
def test_a_lost_manifest_is_made_again_from_the_paths(make_bundle: Make, tmp_path: Path, as_archive: bool) -> None:
    path = make_bundle("b")
    newest_s = max(int(file.stat().st_mtime) for file in path.rglob("*") if file.is_file())
    (path / "manifest.json").unlink()
    (path / "hosts/node1/flight-recorder").rename(path / "hosts/node1/flight_recorder")
    (path / "hosts/node2/unheard-of").mkdir()
    (path / "hosts/node2/unheard-of/x").write_bytes(b"?")
    if as_archive:
        with tarfile.open(tmp_path / "b.tgz", "w:gz") as archive:
            archive.add(path / "hosts", "hosts")
        path = tmp_path / "b.tgz"
        assert is_bundle(path)
    with open_bundle(path) as bundle:
        assert [(host.name, host.outcome) for host in bundle.manifest.hosts] == [
            ("node1", Outcome.PARTIAL),
            ("node2", Outcome.PARTIAL),
        ]
        assert abs(bundle.manifest.created_ns // 10**9 - newest_s) <= 1
        assert {(item.path, item.kind) for item in bundle.manifest.items} == {
            ("hosts/node1/stacks/rank0.json", Kind.STACKS),
            ("hosts/node1/flight_recorder/rank0.pickle", Kind.FLIGHT_RECORDER),
            ("hosts/node2/stacks/rank1.json", Kind.STACKS),
            ("hosts/node2/kernel-log/dmesg.txt", Kind.KERNEL_LOG),
        }
        assert len(contents(bundle)) == 4
        assert "one was made from the paths" in reasons(bundle)


def test_a_manifest_cut_off_at_the_end_of_an_archive_counts_as_lost(pack_tar: Pack) -> None:
    path = pack_tar(GOOD[::-1], "w")
    path.write_bytes(path.read_bytes()[: 1024 + 512 + 100])
    with open_bundle(path) as bundle:
        assert contents(bundle) == {"hosts/n/gpu/x": b"x"}
        assert "one was made from the paths" in reasons(bundle)


def test_an_unreadable_manifest_is_refused(pack_tar: Pack) -> None:
    for text in (b"{", b"\xff", b"", MANIFEST.replace(b"hosts/n/gpu/x", b"hosts/../../x")):
        with pytest.raises(BundleError, match=r"manifest.json"), open_bundle(pack_tar([("manifest.json", text)])):
            pass


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x1f",
        b"\x1f\x8b",
        b"\x1f\x8b\x08" + bytes(40),
        bytes(512),
        bytes(10240),
        b"PK\x03\x04" + bytes(2000),
        b"text\n" * 300,
        gzip.compress(b"a log line\n" * 1000),
        b"BZh9" + bytes(1000),
    ],
)
def test_other_files_are_no_bundle(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "b.tgz"
    path.write_bytes(data)
    assert not is_bundle(path)
    with pytest.raises(BundleError, match="not a bundle") as caught, open_bundle(path):
        pass
    assert caught.value.advice


def test_other_directories_are_no_bundle(tmp_path: Path) -> None:
    (tmp_path / "hosts").mkdir()
    (tmp_path / "notes.txt").write_text("x")
    assert not is_bundle(tmp_path)
    with pytest.raises(BundleError, match="not a bundle"), open_bundle(tmp_path):
        pass
    (tmp_path / "manifest.json").write_text('{"name": "a web application"}')
    assert not is_bundle(tmp_path)
    with pytest.raises(BundleError, match="schema_version is missing"), open_bundle(tmp_path):
        pass


def test_other_archives_are_no_bundle(pack_tar: Pack) -> None:
    path = pack_tar([("README", b"x"), ("ansible/hosts", b"y"), ("hosts/all", b"z")])
    assert not is_bundle(path)
    with pytest.raises(BundleError, match="not a bundle"), open_bundle(path):
        pass


def test_is_bundle_sees_a_large_first_member_and_reads_little(pack_tar: Pack, make_bundle: Make) -> None:
    assert is_bundle(pack_tar([("manifest.json", b" " * (3 << 20))]))
    assert not is_bundle(pack_tar([("big", bytes(1 << 20)), *GOOD]))
    assert is_bundle(make_bundle("b"))


def test_what_cannot_be_opened_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    for name in ("missing", "loop", "x" * 300):
        assert not is_bundle(tmp_path / name)
        with pytest.raises(UsageError, match="cannot open"), open_bundle(tmp_path / name):
            pass


@pytest.mark.timeout(20)
def test_fifos_devices_and_sockets_are_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (tmp_path / "fifo", tmp_path / "socket", Path("/dev/zero"), Path("/dev/null")):
            assert not is_bundle(path)
            with pytest.raises((BundleError, UsageError)), open_bundle(path):
                pass


def test_a_full_temporary_directory_is_told(pack_tar: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack_tar(GOOD)
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full)
        with pytest.raises(BundleError, match="No space left") as caught, open_bundle(path):
            pass
    assert "TMPDIR" in caught.value.advice


# --- hostile bundles ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "says"),
    [
        (("/hosts/n/gpu/y", b"evil"), "'/hosts/n/gpu/y': skipped: its path leads out"),
        (("hosts/n/../../../y", b"evil"), "leads out of the bundle"),
        (("../hosts/n/gpu/y", b"evil"), "leads out of the bundle"),
        (("hosts/n/gpu/\x1b[2J", b"evil"), "'hosts/n/gpu/\\x1b[2J': skipped: its path holds control"),
        (("hosts/n/gpu/a\\b", b"evil"), "backslashes"),
        (("hosts/" + "n" * 300, b"evil"), "too long"),
        (("hosts/n/gpu/x", b"evil"), "already held a file of that path"),
        (("./hosts/n//gpu/x", b"evil"), "already held a file of that path"),
        (("manifest.json", b"{}"), "already held a file of that path"),
        (("manifest.json/x", b"evil"), "its path is not below hosts/"),
        (("README", b"evil"), "does not belong"),
        (("other/hosts/n/gpu/x", b"evil"), "lies beside the bundle"),
        (link("hosts/n/gpu/y", "/etc/passwd", tarfile.SYMTYPE), "no regular file: symbolic link"),
        (link("hosts/n/gpu/y", "hosts/n/gpu/x", tarfile.LNKTYPE), "no regular file: hard link"),
        (link("hosts/n/gpu/y", "", tarfile.CHRTYPE), "no regular file: device"),
        (link("hosts/n/gpu/y", "", tarfile.BLKTYPE), "no regular file: device"),
        (link("hosts/n/gpu/y", "", tarfile.FIFOTYPE), "no regular file: fifo"),
        (link("hosts/n/gpu/y", "", b"Z"), "no regular file: unknown"),
        (link("../../y", "", tarfile.DIRTYPE), "leads out of the bundle"),
    ],
)
def test_a_hostile_member_is_skipped_with_one_line(
    pack_tar: Pack, tmp_path: Path, member: tuple[str, bytes] | tarfile.TarInfo, says: str
) -> None:
    path = pack_tar([*GOOD, member])
    with open_bundle(path) as bundle:
        assert contents(bundle) == {"hosts/n/gpu/x": b"x"}
        assert len(bundle.gaps) == 1
        assert says in reasons(bundle)
        assert all(text.isprintable() for gap in bundle.gaps for text in dataclasses.astuple(gap))
    assert [file.name for file in tmp_path.iterdir()] == ["made.bin"]


def test_a_symlink_in_the_place_of_a_listed_file_is_not_followed(pack_tar: Pack) -> None:
    path = pack_tar([GOOD[0], link("hosts/n/gpu/x", "/etc/passwd", tarfile.SYMTYPE), ("hosts/n/gpu/x", b"x")])
    with open_bundle(path) as bundle:
        assert contents(bundle) == {"hosts/n/gpu/x": b"x"}


def test_too_many_or_too_large_is_refused(pack_tar: Pack, make_bundle: Make) -> None:
    files = [(f"hosts/n/gpu/{number}", b"x" * 100) for number in range(50)]
    for path in (pack_tar([*GOOD, *files]), make_bundle("b")):
        with pytest.raises(BundleError, match="more than 5 entries"), open_bundle(path, Limits(members=5)):
            pass
        with pytest.raises(BundleError, match="more than 2000 bytes"), open_bundle(path, Limits(total_bytes=2000)):
            pass


def test_a_hundred_thousand_hostile_members_make_one_gap(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(link("hosts/n/gpu/y", "/etc/passwd", tarfile.SYMTYPE))
    block = buffer.getvalue()[:512]
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        for name, data in GOOD:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    data = (tmp_path / "b.tar").read_bytes()[: 512 * 4]
    (tmp_path / "b.tar").write_bytes(data + block * 100_000 + bytes(1024))
    with open_bundle(tmp_path / "b.tar") as bundle:
        assert [gap.what for gap in bundle.gaps] == ["'hosts/n/gpu/y' and 99999 more"]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.mkdir()
    (path / "rank0.json").write_bytes(b"secret")
    return path


def assert_no_secret(path: Path) -> None:
    with open_bundle(path) as bundle:
        assert b"secret" not in contents(bundle).values()
        assert bundle.gaps != ()


def test_a_directory_with_links_is_never_left(make_bundle: Make, secret: Path) -> None:
    path = make_bundle("b")
    (path / "hosts/node1/stacks/rank0.json").unlink()
    (path / "hosts/node1/stacks/rank0.json").symlink_to(secret / "rank0.json")
    assert_no_secret(path)
    shutil.rmtree(path / "hosts/node1/stacks")
    (path / "hosts/node1/stacks").symlink_to(secret)
    assert_no_secret(path)
    (path / "hosts").rename(path / "moved")
    (path / "hosts").symlink_to(path / "moved")
    assert_no_secret(path)


def test_a_link_put_there_after_opening_is_not_followed(make_bundle: Make, secret: Path) -> None:
    path = make_bundle("b")
    item = Artifact(path="hosts/node1/stacks/rank0.json", kind=Kind.STACKS, host="node1", origin="")
    with open_bundle(path) as bundle:
        (path / "hosts/node1/stacks").rename(path / "moved")
        (path / "hosts/node1/stacks").symlink_to(secret)
        with pytest.raises(BundleError, match="cannot be read"):
            bundle.read(item)
        (path / "hosts/node1/stacks").unlink()
        (path / "hosts/node1/stacks").mkdir()
        os.mkfifo(path / item.path)
        with pytest.raises(BundleError, match="no regular file"):
            bundle.read(item)


def test_a_manifest_that_is_a_link_is_not_read(make_bundle: Make) -> None:
    path = make_bundle("b")
    (path / "manifest.json").rename(path.parent / "manifest.json")
    (path / "manifest.json").symlink_to(path.parent / "manifest.json")
    assert not is_bundle(path)
    with open_bundle(path) as bundle:
        assert bundle.manifest.job is None


@pytest.mark.timeout(20)
def test_fifos_in_a_directory_do_not_block(make_bundle: Make) -> None:
    path = make_bundle("b")
    (path / "hosts/node1/stacks/rank0.json").unlink()
    os.mkfifo(path / "hosts/node1/stacks/rank0.json")
    os.mkfifo(path / "hosts/node1/fifo")
    with open_bundle(path) as bundle:
        assert len(contents(bundle)) == 3
        assert "no regular file" in reasons(bundle)


def test_a_very_deep_directory_is_not_descended(make_bundle: Make) -> None:
    path = make_bundle("b")
    directory = os.open(path / "hosts", os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=directory)
        inner = os.open("d", os.O_RDONLY, dir_fd=directory)
        os.close(directory)
        directory = inner
    os.close(directory)
    try:
        with open_bundle(path) as bundle:
            assert len(contents(bundle)) == 4
            assert "does not belong" in reasons(bundle)
    finally:
        # shutil.rmtree recurses and gives up.
        subprocess.run(["rm", "-rf", path / "hosts/d"], check=True, timeout=60)


def test_names_that_are_no_text_are_skipped(make_bundle: Make) -> None:
    path = make_bundle("b")
    (path / "hosts/node1/stacks" / os.fsdecode(b"\xff\n")).write_bytes(b"x")
    with open_bundle(path) as bundle:
        assert len(contents(bundle)) == 4
        assert all(text.isprintable() for gap in bundle.gaps for text in dataclasses.astuple(gap))


def test_files_one_may_not_read_are_gaps(make_bundle: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_others(path: str, *arguments: int, **options: int) -> int:
        if path == "rank0.json":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments, **options)

    # Root, as whom tests may run, is permitted everything.
    path, real_open = make_bundle("b"), os.open
    monkeypatch.setattr(os, "open", open_others)
    with open_bundle(path) as bundle:
        assert len(contents(bundle)) == 3
        assert "Permission denied" in reasons(bundle)
