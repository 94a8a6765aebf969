"""The scan sees every process, and no sick one holds it up."""

import os
import time
from pathlib import Path

import pytest

from ncclprobe.probe import scan as scan_module
from ncclprobe.probe.scan import scan
from tests.unit.probe.fake_proc import FakeProc, torchrun_environ


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path)


def test_a_marked_process_in_full(fake: FakeProc) -> None:
    fake.add(10, parent=1, arguments=["python3.11", "train.py", "--x"], environ=torchrun_environ(0), inner_pid=7)
    seen = scan(fake.root).marked[10]
    assert (seen.parent_pid, seen.uid, seen.inner_pid, seen.group) == (1, 1000, 7, 10)
    assert seen.command == "python3.11 train.py --x"
    assert seen.is_python
    assert seen.environ["MASTER_PORT"] == "29500"


@pytest.mark.parametrize(
    ("arguments", "exe", "name", "is_python"),
    [
        (["/opt/conda/bin/python", "x.py"], "/opt/conda/bin/python3.12", None, True),
        (["ray::Trainer"], "/usr/bin/python3.10 (deleted)", None, True),
        (["./app"], "/srv/app", "pt_main_thread", True),
        (["bash", "-c", "python x.py"], "/usr/bin/bash", None, False),
        (["wandb-core"], "/opt/wandb-core", None, False),
    ],
)
def test_python_is_told_by_its_program(
    fake: FakeProc, arguments: list[str], exe: str, name: str | None, is_python: bool
) -> None:
    fake.add(10, arguments=arguments, exe=exe, name=name, environ=torchrun_environ(0))
    assert scan(fake.root).marked[10].is_python is is_python


def test_threads_of_the_kernel_zombies_and_processes_without_a_rank_are_not_marked(fake: FakeProc) -> None:
    fake.add(2, parent=0, arguments=[])
    fake.add(10, arguments=[], environ=torchrun_environ(0), state="Z")
    fake.add(11, environ={"PATH": "/bin", "MY_RANK": "3", "RANKED": "1"})
    result = scan(fake.root)
    assert not result.marked
    assert result.unmarked == [11]


def test_who_may_not_be_read_is_counted_if_it_is_python(fake: FakeProc) -> None:
    for pid, arguments in ((10, ["python", "a.py"]), (11, ["sshd"])):
        fake.add(pid, arguments=arguments)
        fake.hide_environ(pid)
    assert scan(fake.root).refused == [10]


def test_a_process_that_vanishes_between_two_reads(fake: FakeProc) -> None:
    (fake.root / "12").mkdir()
    assert scan(fake.root).get(12) is None


def test_a_sick_process_is_named_and_the_others_are_seen(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_PATIENCE_S", 0.2)
    for pid in range(10, 20):
        fake.add(pid, environ=torchrun_environ(pid - 10))
    fake.block_environ(13)
    fake.block_environ(17)
    begin = time.monotonic()
    result = scan(fake.root)
    assert result.stuck == [13, 17]
    assert sorted(result.marked) == [10, 11, 12, 14, 15, 16, 18, 19]
    assert result.get(13) is None
    assert time.monotonic() - begin < 2


def test_too_many_sick_processes_end_the_scan(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(scan_module, "_LESS_PATIENCE_S", 0.05)
    monkeypatch.setattr(scan_module, "_MAX_STUCK", 3)
    for pid in range(10, 20):
        fake.add(pid)
        fake.block_environ(pid)
    result = scan(fake.root)
    assert result.stuck == [10, 11, 12]
    assert result.unread == 7


def test_a_reader_that_comes_back_late_changes_nothing(fake: FakeProc, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan_module, "_PATIENCE_S", 0.1)
    fake.add(10)
    fake.block_environ(10)
    fake.add(11, environ=torchrun_environ(1))
    result = scan(fake.root)
    with (fake.root / "10" / "environ").open("w") as pipe:
        pipe.write("RANK=0\0")
    time.sleep(0.2)
    assert sorted(result.marked) == [11]


def test_the_real_proc_has_us_and_our_parents() -> None:
    result = scan()
    assert os.getpid() not in result.marked
    assert os.getppid() in result.ancestors(os.getpid())
    assert not result.stuck
