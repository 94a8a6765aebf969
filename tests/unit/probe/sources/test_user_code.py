"""The user's files that stacks and dumps point to: those, and nothing else of the host."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.probe.source import Collected, Options
from ncclprobe.probe.sources import user_code
from ncclprobe.probe.sources.user_code import SOURCE
from tests.unit.probe.processes import running
from tests.unit.probe.sources.context import collect, context, process


@pytest.fixture
def pid(tmp_path: Path) -> Iterator[int]:
    with running(cwd=tmp_path) as pid:
        yield pid


def stacks(tmp_path: Path, pid: int | None, *files: str, rank: int | None = 0) -> Collected:
    """py-spy's output with one frame a file."""
    frames = [{"name": "f", "filename": file, "module": None, "short_filename": None, "line": 1} for file in files]
    thread = {"pid": pid, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 1, "active": True}
    spool = tmp_path / "spool"
    spool.write_text(json.dumps([{**thread, "owns_gil": False, "frames": frames}]))
    artifact = Artifact(path="stacks/x", kind=Kind.STACKS, host="node1", origin="py-spy", rank=rank, pid=pid)
    return Collected(artifact=artifact, spool=spool)


def test_each_file_once_by_its_whole_name(tmp_path: Path, pid: int) -> None:
    for name in ("train.py", "sub/train.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"# {name}\n")
    wanted = stacks(tmp_path, pid, f"{tmp_path}/train.py", f"{tmp_path}/sub/train.py", f"{tmp_path}/train.py")
    found, gaps = collect(SOURCE, context(process(pid), earlier=(wanted,)))
    assert not gaps
    assert {item.origin: item.data for item in found} == {
        f"{tmp_path}/train.py": b"# train.py\n",
        f"{tmp_path}/sub/train.py": b"# sub/train.py\n",
    }
    assert len({item.file for item in found}) == 2
    assert {item.kind for item in found} == {Kind.USER_CODE}


def test_a_relative_name_counts_from_the_directory_of_the_process(tmp_path: Path, pid: int) -> None:
    (tmp_path / "train.py").write_text("x")
    (found,), _ = collect(SOURCE, context(process(pid), earlier=(stacks(tmp_path, pid, "train.py"),)))
    assert (found.origin, found.data) == ("train.py", b"x")


def test_a_dump_without_a_pid_is_read_by_that_of_its_rank(tmp_path: Path, pid: int) -> None:
    (tmp_path / "train.py").write_text("x")
    wanted = stacks(tmp_path, None, "train.py", rank=3)
    (found,), _ = collect(SOURCE, context(process(pid, 3), earlier=(wanted,)))
    assert found.pid == pid
    assert collect(SOURCE, context(process(pid, 4), earlier=(wanted,))) == ([], [])


def test_libraries_and_other_files_are_not_taken(tmp_path: Path, pid: int) -> None:
    (tmp_path / "secret.txt").write_text("x")
    names = ("/usr/lib/python3.11/threading.py", "/v/site-packages/torch/x.py", f"{tmp_path}/secret.txt", "<string>")
    assert collect(SOURCE, context(process(pid), earlier=(stacks(tmp_path, pid, *names),))) == ([], [])


def test_a_file_that_is_not_there_is_a_gap(tmp_path: Path, pid: int) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    wanted = stacks(tmp_path, pid, "gone.py", "pipe.py")
    found, gaps = collect(SOURCE, context(process(pid), earlier=(wanted,)))
    assert not found
    assert [(gap.what, gap.why) for gap in gaps] == [
        ("no source of gone.py", "No such file or directory"),
        ("no source of pipe.py", "not a regular file"),
    ]


def test_a_long_file_is_cut_and_says_so(tmp_path: Path, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_LIMIT_BYTES", 4)
    for name, text in (("a.py", "1234"), ("b.py", "12345")):
        (tmp_path / name).write_text(text)
    found, _ = collect(SOURCE, context(process(pid), earlier=(stacks(tmp_path, pid, "a.py", "b.py"),)))
    assert [(item.data, item.truncated) for item in found] == [(b"1234", False), (b"1234", True)]


def test_so_many_files_and_no_more(tmp_path: Path, pid: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "_MAX_FILES", 2)
    names = [f"{letter}.py" for letter in "abcde"]
    for name in names:
        (tmp_path / name).touch()
    found, (gap,) = collect(SOURCE, context(process(pid), earlier=(stacks(tmp_path, pid, *names),)))
    assert len(found) == 2
    assert gap.what == "3 source files"


def test_damaged_evidence_names_no_files(tmp_path: Path, pid: int) -> None:
    wanted = stacks(tmp_path, pid, "train.py")
    wanted.spool.write_bytes(b"[{")
    assert collect(SOURCE, context(process(pid), earlier=(wanted,))) == ([], [])


def test_only_if_it_is_wanted() -> None:
    assert not SOURCE.is_wanted(Options(user_code=False))
