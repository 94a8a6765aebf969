import gzip
import io
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ncclprobe.bundle.store import DEFAULT_LIMITS, Limits
from ncclprobe.bundle.tarstream import DamagedError, TarStream
from ncclprobe.model.errors import BundleError

LONG = "hosts/" + "/".join(["d" * 90] * 4) + "/ü"


def packed(format_: int, files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format_) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def listed(data: bytes, limits: Limits = DEFAULT_LIMITS) -> dict[str, bytes]:
    tar = TarStream(io.BytesIO(data), limits)
    return {member.name: b"".join(tar.data()) for member in tar.members()}


def rewritten(header: bytes, **fields: tuple[int, bytes]) -> bytes:
    """The header with (offset, bytes) written over it and a correct check sum."""
    block = bytearray(header)
    for offset, value in fields.values():
        block[offset : offset + len(value)] = value
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("format_", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_names_and_bytes_of_the_usual_formats(format_: int, pack: Callable[[bytes], bytes]) -> None:
    files = {"a": b"", "b": b"x" * 512, LONG: b"y" * 700_001, "c": b"z"}
    assert listed(pack(packed(format_, files))) == files


def test_long_posix_names_use_the_prefix() -> None:
    name = "hosts/" + "n" * 90 + "/" + "f" * 90
    assert listed(packed(tarfile.USTAR_FORMAT, {name: b"1"})) == {name: b"1"}


def test_old_gnu_headers_keep_no_prefix() -> None:
    header = packed(tarfile.GNU_FORMAT, {"a": b""})[:512]
    assert list(listed(rewritten(header, access_time=(345, b"14524770000\0")) + bytes(1024))) == ["a"]


@pytest.mark.parametrize("format_", ["gnu", "pax", "ustar", "v7"])
def test_what_gnu_tar_writes(tmp_path: Path, format_: str) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle/file").write_bytes(b"data")
    (tmp_path / "bundle/link").symlink_to("/etc/passwd")
    done = subprocess.run(
        ["tar", "c", f"--format={format_}", "bundle"], cwd=tmp_path, capture_output=True, check=True, timeout=30
    )
    members = list(TarStream(io.BytesIO(done.stdout), DEFAULT_LIMITS).members())
    assert {member.name: member.kind for member in members} == {
        "bundle/": "directory",
        "bundle/file": "file",
        "bundle/link": "symbolic link",
    }


def test_gzip_files_after_one_another_are_one_stream() -> None:
    data = packed(tarfile.PAX_FORMAT, {"a": b"1" * 5000})
    assert listed(gzip.compress(data[:700]) + gzip.compress(data[700:]) + b"\0" * 100) == {"a": b"1" * 5000}


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_every_cut_before_the_end_is_noticed(pack: Callable[[bytes], bytes]) -> None:
    tar = packed(tarfile.PAX_FORMAT, {"a": b"1" * 600, LONG: b"2" * 10})
    whole = pack(tar)
    # A plain tar is whole once its first block of zeros is there.
    end = len(whole) if pack is not bytes else tar.rindex(b"2") // 512 * 512 + 1024
    for length in range(end):
        with pytest.raises(DamagedError):
            listed(whole[:length])


def test_all_bytes_before_a_cut_are_handed_out() -> None:
    data = gzip.compress(packed(tarfile.PAX_FORMAT, {"a": bytes(range(256)) * 4000}), 0)
    tar = TarStream(io.BytesIO(data[: len(data) // 2]), DEFAULT_LIMITS)
    next(tar.members())
    chunks: list[bytes] = []
    with pytest.raises(DamagedError, match="truncated"):
        chunks.extend(tar.data())
    assert len(b"".join(chunks)) > len(data) // 2 - 2048


def test_a_flipped_header_is_not_taken_for_the_end() -> None:
    data = bytearray(packed(tarfile.PAX_FORMAT, {"a": b"1", "b": b"2"}))
    data[1024] ^= 1
    with pytest.raises(DamagedError, match="header"):
        listed(bytes(data))


def test_a_wrong_gzip_check_sum_is_noticed() -> None:
    data = bytearray(gzip.compress(packed(tarfile.PAX_FORMAT, {"a": b"1"})))
    data[-5] ^= 1
    with pytest.raises(DamagedError):
        listed(bytes(data))


@pytest.mark.parametrize(
    "size", [b"\xff" * 12, b"-0000000001\0", b"9999999999\0\0", b"0x10\0", b"1_0\0\0\0\0\0\0\0\0\0"]
)
def test_sizes_that_are_none_are_damage(size: bytes) -> None:
    header = packed(tarfile.USTAR_FORMAT, {"a": b""})[:512]
    with pytest.raises(DamagedError):
        listed(rewritten(header, size=(124, size)) + bytes(1024))


@pytest.mark.parametrize("size", [b"\x80" + b"\x7f" * 11, b"77777777777\0", b"\x80" + b"\0" * 6 + b"\x02" + b"\0" * 4])
def test_a_member_larger_than_the_limit_is_refused_unread(size: bytes) -> None:
    header = packed(tarfile.USTAR_FORMAT, {"a": b""})[:512]
    limits = Limits(total_bytes=1 << 30)
    with pytest.raises(BundleError, match="holds more than"):
        listed(rewritten(header, size=(124, size)), limits)


@pytest.mark.parametrize("kind", [b"L", b"x", b"K", b"g"])
def test_a_header_of_any_claimed_length_is_not_loaded(kind: bytes) -> None:
    header = rewritten(packed(tarfile.USTAR_FORMAT, {"a": b""})[:512], kind=(156, kind), size=(124, b"07777777777\0"))
    with pytest.raises(DamagedError, match="claims"):
        listed(header + bytes(1024))


@pytest.mark.parametrize(
    "records", [b"0 path=x\n", b"1 path=x\n", b"-5 path=x\n", b"99 path=x\n", b"path=x\n", b"9" * 500, b" x", b"\0"]
)
def test_a_malformed_pax_header_is_damage(records: bytes) -> None:
    size = b"%011o\0" % len(records)
    header = rewritten(packed(tarfile.USTAR_FORMAT, {"a": b""})[:512], kind=(156, b"x"), size=(124, size))
    with pytest.raises(DamagedError):
        listed(header + records.ljust(512, b"\0") + packed(tarfile.USTAR_FORMAT, {"b": b""}))


@pytest.mark.timeout(20)
def test_a_hundred_thousand_chained_headers_stop_at_the_limit() -> None:
    header = rewritten(packed(tarfile.USTAR_FORMAT, {"a": b""})[:512], kind=(156, b"x"))
    with pytest.raises(BundleError, match="more than 50000 entries"):
        listed(gzip.compress(header * 100_000), Limits(members=50_000))


@pytest.mark.timeout(20)
def test_an_archive_that_unpacks_to_too_much_is_refused() -> None:
    files = {str(number): bytes(1 << 20) for number in range(40)}
    bomb = gzip.compress(packed(tarfile.PAX_FORMAT, files))
    with pytest.raises(BundleError, match="holds more than"):
        listed(bomb, Limits(total_bytes=30 << 20))
    trailing = gzip.compress(packed(tarfile.PAX_FORMAT, {"a": b""}) + bytes(40 << 20))
    with pytest.raises(BundleError, match="holds more than"):
        listed(trailing, Limits(total_bytes=30 << 20))
