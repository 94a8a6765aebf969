"""The kernel's log from the first place that may be read."""

from pathlib import Path

import pytest

from ncclprobe.probe.sources import kernel_log
from ncclprobe.probe.sources.kernel_log import SOURCE
from tests.unit.probe.sources.context import collect, context


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No command and no file, unless the test puts one there."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(kernel_log, "_COMMANDS", ((str(tmp_path / "dmesg"), "-x"), (str(tmp_path / "dmesg"),)))
    monkeypatch.setattr(kernel_log, "_FILES", (str(tmp_path / "kern.log"),))


def put(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_dmesg(tmp_path: Path) -> None:
    put(tmp_path / "dmesg", "echo Out of memory")
    (found,), gaps = collect(SOURCE, context())
    assert not gaps
    assert (found.data, found.origin) == (b"Out of memory\n", f"{tmp_path}/dmesg -x")


def test_an_old_dmesg_that_does_not_know_the_option(tmp_path: Path) -> None:
    put(tmp_path / "dmesg", '[ "$1" = -x ] && { echo usage >&2; exit 1; }; echo plain')
    (found,), _ = collect(SOURCE, context())
    assert found.data == b"plain\n"


def test_a_file_when_dmesg_is_not_permitted(tmp_path: Path) -> None:
    put(tmp_path / "dmesg", "echo dmesg: Operation not permitted >&2; exit 1")
    (tmp_path / "kern.log").write_text("from the file")
    (found,), _ = collect(SOURCE, context())
    assert found.data == b"from the file"


@pytest.mark.parametrize("output", ["", "-- No entries --", "-- Logs begin at Mon, end at Tue. --"])
def test_what_prints_nothing_is_passed_over(tmp_path: Path, output: str) -> None:
    put(tmp_path / "dmesg", f"echo '{output}'")
    (tmp_path / "kern.log").write_text("from the file")
    (found,), _ = collect(SOURCE, context())
    assert found.data == b"from the file"
    (tmp_path / "kern.log").unlink()
    _, (gap,) = collect(SOURCE, context())
    assert gap.why == f"{tmp_path}/dmesg printed nothing"


def test_nothing_may_be_read(tmp_path: Path) -> None:
    put(tmp_path / "dmesg", "printf 'dmesg: read kernel buffer failed: Operation not permitted\nmore' >&2; exit 1")
    found, (gap,) = collect(SOURCE, context())
    assert not found
    assert gap.why == "dmesg: read kernel buffer failed: Operation not permitted"
    assert "dmesg_restrict" in gap.action


def test_nothing_is_installed() -> None:
    _, (gap,) = collect(SOURCE, context())
    assert "cannot be run: No such file" in gap.why


def test_one_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_TIMEOUT_S", 0.2)
    put(tmp_path / "dmesg", "exec sleep 600")
    _, (gap,) = collect(SOURCE, context())
    assert "did not end in 0.2 s" in gap.why


def test_only_the_end_of_a_long_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_log, "_LIMIT_BYTES", 4)
    put(tmp_path / "dmesg", "printf 123456")
    (found,), _ = collect(SOURCE, context())
    assert (found.data, found.truncated) == (b"3456", True)
