"""What a reproducer needs is said in one line before anything is started."""

from dataclasses import replace
from pathlib import Path

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.repro import launch as launch_module
from ncclprobe.repro import memory_cgroup, needs
from ncclprobe.repro.catalog import find
from ncclprobe.repro.launch import launch
from ncclprobe.repro.reproducer import Need

REPRO = find("mismatched-logging")


def test_what_needs_nothing_lacks_nothing() -> None:
    assert needs.missing(REPRO) is None


def test_root_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs.os, "geteuid", lambda: 1000)
    assert needs.missing(replace(REPRO, requires=(Need.ROOT,))) == (
        "mismatched-logging needs root",
        "run it with sudo",
    )


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    needs._namespaces.cache_clear()
    monkeypatch.setattr(needs, "find_tool", lambda name: None if name == "sshd" else name)
    found = needs.missing(replace(REPRO, requires=(Need.NAMESPACES,)))
    needs._namespaces.cache_clear()
    assert found is not None
    assert found[0] == "mismatched-logging needs sshd, not installed"


def test_nothing_is_started_without_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_module, "find_spec", lambda _: True)
    monkeypatch.setattr(needs.Path, "glob", lambda *_: iter(()))
    with pytest.raises(UsageError, match="mismatched-logging needs an NVIDIA GPU") as caught:
        launch(replace(REPRO, requires=(Need.GPU,)), ranks=2)
    assert caught.value.advice


@pytest.mark.parametrize("version", [1, 2])
def test_a_cgroup_of_either_version(version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = tmp_path / "memory", tmp_path
    monkeypatch.setattr(memory_cgroup, "_V1", one)
    monkeypatch.setattr(memory_cgroup, "_V2", two)
    assert memory_cgroup.root() is None
    if version == 1:
        one.mkdir()
        (one / "memory.limit_in_bytes").touch()
    else:
        (two / "cgroup.subtree_control").write_text("cpu memory pids\n")
    ((path, files),) = memory_cgroup.plan("x", 1, 64).items()
    assert Path(path).parent == (one if version == 1 else two)
    assert files["memory.limit_in_bytes" if version == 1 else "memory.max"] == str(64 << 20)


def test_a_cgroup_that_nobody_owns_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_cgroup, "root", lambda: tmp_path)
    (ours,) = memory_cgroup.plan("x", 1, 64)
    for path in (ours, tmp_path / "ncclprobe-y-rank1.4194305", tmp_path / "user.slice"):
        Path(path).mkdir()
    memory_cgroup.remove_stale()
    assert {path.name for path in tmp_path.iterdir()} == {Path(ours).name, "user.slice"}
