"""A host's answer is taken apart as if a stranger had sent it: what is whole is kept, the rest is one gap."""

import gzip
import io
import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.bundle.reader import open_bundle
from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.collect import answer as answer_module
from ncclprobe.collect import incoming as incoming_module
from ncclprobe.collect.answer import Answer, read_answer
from ncclprobe.collect.kit import NO_PYTHON_STATUS
from ncclprobe.collect.transport import HostError
from ncclprobe.model.manifest import Manifest, Outcome
from ncclprobe.probe.stream import HOST_NAME, ITEM_NAME, START_MARK
from tests.unit.collect.fake_transport import Answering, FakeProcess, good_answer


class Reading:
    """A bundle that takes one host's answer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer = Answer("node1", "10.0.0.1")

    def read(self, *pieces: bytes, status: int | None = 0, error_text: str = "") -> Answer:
        process = FakeProcess(iter(pieces), time.monotonic() + 20, status, error_text)
        with BundleWriter.create(self.path, "1", None, None) as writer:
            read_answer(process, self.answer, writer)
            writer.add_host(self.answer.outcome)
        return self.answer

    def kept(self) -> dict[str, bytes]:
        with open_bundle(self.path) as bundle:
            return {item.path: bundle.read(item) for item in bundle.manifest.items}

    def manifest(self) -> Manifest:
        with open_bundle(self.path) as bundle:
            return bundle.manifest


@pytest.fixture
def reading(tmp_path: Path) -> Reading:
    return Reading(tmp_path / "bundle")


def only_gap(answer: Answer) -> tuple[str, str]:
    (gap,) = answer.gaps
    assert gap.who == "node1"
    assert gap.action
    return gap.what, gap.why


def members(*parts: tuple[tarfile.TarInfo, bytes], end: bool = True) -> bytes:
    """A stream of members that no probe would write."""
    buffer = io.BytesIO()
    for info, data in parts:
        buffer.write(info.tobuf(tarfile.PAX_FORMAT))
        buffer.write(data + bytes(-len(data) % 512))
    return START_MARK + buffer.getvalue() + bytes(1024 if end else 0)


def info(name: str, size: int = 0, kind: bytes = tarfile.REGTYPE, **fields: Any) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.size, made.type = size, kind
    for key, value in fields.items():
        setattr(made, key, value)
    return made


def document(name: str, content: Any) -> tuple[tarfile.TarInfo, bytes]:
    data = content if isinstance(content, bytes) else json.dumps(content).encode()
    return info(name, len(data)), data


class TestWholeAnswers:
    def test_all_of_it(self, reading: Reading) -> None:
        sources = [{"name": "gpu", "outcome": "complete", "seconds": 0.5, "longest_pause_s": 0.0}]
        gap = {"who": "rank 3", "what": "w", "why": "y", "action": "a"}
        stream = Answering().hello().item(b"\0" * 1000, rank=0, pid=7, look=1, exit_status=-9, truncated=True)
        answer = reading.read(stream.summary(sources=sources, gaps=[gap], jobs=[]))
        assert answer.is_whole
        assert answer.outcome.outcome is Outcome.COMPLETE
        assert (answer.python, str(answer.job)) == ("3.11.2", "run1")
        assert abs(answer.clock_offset_ns or 0) < 10**9
        assert answer.gaps[0].who == "rank 3"
        assert reading.kept() == {"hosts/node1/gpu/gpu0.json": b"\0" * 1000}
        (item,) = reading.manifest().items
        assert (item.rank, item.pid, item.look, item.exit_status, item.truncated) == (0, 7, 1, -9, True)

    @pytest.mark.parametrize("size", [1, 7, 511, 512, 513, 4096])
    def test_however_it_is_cut_into_pieces(self, reading: Reading, size: int) -> None:
        data = good_answer(b"x" * 3000)
        answer = reading.read(*(data[start : start + size] for start in range(0, len(data), size)))
        assert answer.is_whole
        assert reading.kept() == {"hosts/node1/gpu/gpu0.json": b"x" * 3000}

    def test_what_a_shell_prints_first_is_skipped(self, reading: Reading) -> None:
        assert reading.read(b"Welcome to node1!\nmodules loaded\n", good_answer()).is_whole

    def test_nothing_is_read_after_the_end(self, reading: Reading) -> None:
        def pieces() -> Iterator[bytes]:
            yield good_answer()
            raise AssertionError("it asked for more")

        assert reading.read(*()).gaps
        answer = Answer("node2", "a")
        with BundleWriter.create(reading.path.with_name("b2"), "1", None, None) as writer:
            read_answer(FakeProcess(pieces(), 0), answer, writer)
        assert answer.is_whole
        assert not answer.gaps

    def test_a_source_that_failed_makes_the_host_partial(self, reading: Reading) -> None:
        sources = [{"name": "gpu", "outcome": "timed-out", "seconds": 10}]
        answer = reading.read(Answering().hello().summary(sources=sources))
        assert answer.outcome.outcome is Outcome.PARTIAL

    def test_several_jobs(self, reading: Reading) -> None:
        answer = reading.read(Answering().hello().summary(job=None, jobs=["run1 (2 ranks)", "run2 (2 ranks)"]))
        assert answer.jobs == ("run1 (2 ranks)", "run2 (2 ranks)")
        assert answer.job is None


class TestBrokenAnswers:
    def test_one_that_breaks_off_keeps_what_came(self, reading: Reading) -> None:
        whole = Answering().hello().item(b"a" * 600, "gpu/a").item(b"b" * 600, "gpu/b").cut()
        answer = reading.read(whole[:-700], status=255, error_text="Connection reset\n")
        assert only_gap(answer)[0] == "the rest of its evidence"
        assert "broke off after" in only_gap(answer)[1]
        assert "Connection reset" in only_gap(answer)[1]
        assert reading.kept()["hosts/node1/gpu/a"] == b"a" * 600
        assert answer.outcome.outcome is Outcome.PARTIAL

    @pytest.mark.parametrize("cut", [1, 400, 512, 600, 1023])
    def test_one_that_ends_early_is_never_whole(self, reading: Reading, cut: int) -> None:
        answer = reading.read(Answering().hello().item(b"x" * 100).cut()[:-cut])
        assert not answer.is_whole
        assert len(answer.gaps) == 1

    def test_an_end_without_the_summary(self, reading: Reading) -> None:
        assert "it ended without saying so" in only_gap(reading.read(Answering().hello().cut() + bytes(1024)))[1]

    def test_no_python(self, reading: Reading) -> None:
        answer = reading.read(status=NO_PYTHON_STATUS, error_text="no Python 3.10 or newer\n")
        assert only_gap(answer) == ("no evidence from this host", "it has no Python 3.10 or newer")
        assert answer.outcome.outcome is Outcome.FAILED

    def test_a_command_that_did_not_start(self, reading: Reading) -> None:
        answer = reading.read(status=126, error_text="warning\nThis account is not available.\n\n")
        assert "exit status 126" in only_gap(answer)[1]
        assert "This account is not available." in only_gap(answer)[1]

    def test_a_shell_that_prints_and_never_starts_it(self, reading: Reading) -> None:
        answer = reading.read(b"Please change your password\n", status=1)
        assert "Please change your password" in only_gap(answer)[1]

    def test_a_flood_before_the_start(self, reading: Reading) -> None:
        answer = reading.read(*(b"y\n" * 20_000 for _ in range(1000)))
        assert "did not start" in only_gap(answer)[1]

    def test_the_connection_is_lost(self, reading: Reading) -> None:
        def pieces() -> Iterator[bytes]:
            yield Answering().hello().item(b"x").cut()
            raise HostError("the connection was lost", "try again")

        answer = Answer("node1", "a")
        with BundleWriter.create(reading.path, "1", None, None) as writer:
            read_answer(FakeProcess(pieces(), 0), answer, writer)
        assert only_gap(answer) == ("the rest of its evidence", "the connection was lost")
        assert answer.artifact_count == 1


HEADER_BOMB = tarfile.TarInfo("x")
HEADER_BOMB.size, HEADER_BOMB.type = 8 << 30, tarfile.XHDTYPE
HUGE = document(ITEM_NAME, {"path": "gpu/x", "kind": "gpu", "origin": "o"}), (info("gpu/x", 8 << 30), b"x" * 512)

HOSTILE = {
    "no tar": START_MARK + b"\xff" * 5000,
    "zeros, then noise": START_MARK + bytes(512) + b"x" * 5000,
    "a header of 8 GiB": members((HEADER_BOMB, b"x" * 4096), end=False),
    "a member of 8 GiB": members(*HUGE, end=False),
    "a document of 8 MiB": members((info(HOST_NAME, 8 << 20), b"{" * 4096), end=False),
    "a link": members((info("item.json", kind=tarfile.SYMTYPE, linkname="/etc/shadow"), b"")),
    "a device": members((info("dev", kind=tarfile.CHRTYPE), b"")),
    "a directory": members((info("a/", kind=tarfile.DIRTYPE), b"")),
    "no JSON": members(document(HOST_NAME, b"{{{{")),
    "deep JSON": members(document(HOST_NAME, b"[" * 200_000)),
    "JSON that is no object": members(document(HOST_NAME, [1, 2])),
    "a number of a million digits": members(document(HOST_NAME, b'{"python": ' + b"9" * 1_000_000 + b"}")),
    "fields of other types": members(document(HOST_NAME, {"python": 3, "jobs": 4, "gaps": 5, "sources": 6})),
    "gaps that are none": members(document(HOST_NAME, {"gaps": [1, {"who": []}]})),
    "an unknown outcome": members(document(HOST_NAME, {"sources": [{"name": "x", "outcome": "fine"}]})),
    "an unknown kind": members(document(ITEM_NAME, {"path": "gpu/x", "kind": "virus"}), document("gpu/x", b"x")),
    "a rank that is no number": members(document(ITEM_NAME, {"path": "gpu/x", "kind": "gpu", "rank": "0"})),
    "a time that is none": members(document("hello.json", {"time_ns": -5})),
    "bad gzip": START_MARK + b"\x1f\x8b\x08" + b"x" * 1000,
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_whatever_a_host_sends_is_one_gap(reading: Reading, data: bytes) -> None:
    begin = time.monotonic()
    answer = reading.read(data)
    assert not answer.is_whole
    assert len(answer.gaps) == 1
    assert len(answer.gaps[0].why) < 500
    assert answer.gaps[0].why.isprintable()
    assert answer.outcome.outcome in (Outcome.FAILED, Outcome.PARTIAL)
    assert time.monotonic() - begin < 10


@pytest.mark.parametrize(
    "path", ["../../../etc/passwd", "/etc/passwd", "hosts/other/gpu/x", "a\0b/c", "x" * 5000, "", "..", "gpu/../../x"]
)
def test_paths_cannot_leave_the_folder_of_the_host(reading: Reading, path: str) -> None:
    answer = reading.read(
        members(
            document(ITEM_NAME, {"path": path, "kind": "gpu", "origin": "o"}),
            document("whatever", b"data"),
            document(HOST_NAME, {}),
        )
    )
    assert answer.is_whole
    ((kept, data),) = reading.kept().items()
    assert kept.startswith("hosts/node1/")
    assert data == b"data"
    assert {path.name for path in reading.path.parent.iterdir()} == {"bundle"}


def test_more_than_a_host_may_send(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = incoming_module.Limits(members=10, total_bytes=100_000)
    monkeypatch.setattr(incoming_module.Incoming, "limits", limits)
    stream = Answering().hello()
    for number in range(3):
        stream.item(b"x" * 40_000, f"gpu/{number}")
    answer = reading.read(stream.summary())
    assert "100000 bytes" in only_gap(answer)[1]


def test_a_bomb_in_gzip_counts_what_comes_out(reading: Reading, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = incoming_module.Limits(members=10, total_bytes=100_000)
    monkeypatch.setattr(incoming_module.Incoming, "limits", limits)
    answer = reading.read(START_MARK + gzip.compress(good_answer(b"\0" * 50_000_000)[len(START_MARK) :]))
    assert not answer.is_whole


def test_so_many_gaps_and_jobs_and_no_more(reading: Reading) -> None:
    gap = {"who": "w", "what": "w", "why": "y", "action": "a"}
    answer = reading.read(Answering().hello().summary(gaps=[gap] * 10_000, jobs=["j"] * 10_000))
    assert len(answer.gaps) == answer_module._MAX_GAPS
    assert len(answer.jobs) == answer_module._MAX_JOBS


def test_nothing_a_terminal_would_obey_gets_through(reading: Reading) -> None:
    evil = "\x1b[2Jgone\r\x07\u202e"
    gap = {"who": evil, "what": evil, "why": evil, "action": evil}
    job = {"run_id": evil, "master": "", "scheduler_id": ""}
    stream = Answering().hello().item(b"x", origin=evil)
    answer = reading.read(stream.summary(gaps=[gap], jobs=[evil], python=evil, job=job))
    texts = [answer.python, *answer.jobs, str(answer.job), answer.gaps[0].why, reading.manifest().items[0].origin]
    assert all(text is not None and text.isprintable() for text in texts)


def test_a_bundle_that_is_full_is_a_gap_that_says_so(reading: Reading) -> None:
    answer = Answer("node1", "a")
    writer = BundleWriter.create(reading.path, "1", None, None)
    writer.close()
    read_answer(FakeProcess(iter([good_answer()]), 0), answer, writer)
    assert "closed" in only_gap(answer)[1]
