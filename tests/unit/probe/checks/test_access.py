"""May we look into the ranks? Told without touching them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.model.checkup import Check, CheckState
from ncclprobe.parse import checkup
from ncclprobe.probe.checks import access
from ncclprobe.probe.checks.access import SOURCE, why_no_memory
from ncclprobe.probe.scan import Scan
from tests.unit.probe.processes import NOBODY, in_child, running
from tests.unit.probe.sources.context import collect, context, process


def checks(*processes: Any, tools: Path = Path("/none")) -> dict[str, Check]:
    (item,), gaps = collect(SOURCE, context(*processes, tools=tools))
    assert not gaps
    return {one.name: one for one in checkup.parse(item.data).records if isinstance(one, Check)}


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    for name in ("py-spy", "injector.so", "injection.so"):
        (tmp_path / name).touch()
    return tmp_path


# A thread sleeps before the process says that it is ready: the main one may not yet.
SLEEPER = (
    "import threading; threading.Thread(target=threading.Event().wait).start(); threading.Event().wait(0.3); "
    "print('ready', flush=True); threading.Event().wait()"
)


def test_a_rank_of_our_own(tools: Path) -> None:
    with running(SLEEPER) as pid:
        found = checks(process(pid, 0), tools=tools)
    assert {name: check.state for name, check in found.items()} == {
        "ranks": CheckState.OK,
        "stacks": CheckState.OK,
        "live_dump": CheckState.OK,
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_rank_of_somebody_else_is_an_obstacle_with_advice() -> None:
    with running() as pid:
        why, action = in_child(lambda: why_no_memory(process(pid, 0)), user=NOBODY)
    assert "belongs to another user" in why
    assert "sudo" in action


def test_without_tools_nothing_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/none")
    with running() as pid:
        found = checks(process(pid, 0))
    assert found["stacks"].state is CheckState.BLOCKED
    assert found["live_dump"].state is CheckState.LIMITED


def test_without_a_rank(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "scan", Scan)
    assert checks(tools=tools)["ranks"].state is CheckState.ABSENT
    monkeypatch.setattr(access, "hides_others", lambda: True)
    found = checks(tools=tools)["ranks"]
    assert (found.state, "hidepid" in found.what) == (CheckState.BLOCKED, True)


def test_obstacles_that_are_alike_are_one_line() -> None:
    ranks = [process(1, rank) for rank in range(3)]
    (good,) = access._folded("stacks", ranks, lambda one: None, CheckState.BLOCKED, "all")
    assert good.ranks == (0, 1, 2)
    bad = list(access._folded("stacks", ranks, lambda one: ("w", "a") if one.rank else None, CheckState.BLOCKED, "all"))
    assert json.dumps([(check.state, check.ranks) for check in bad]) == '[["ok", [0]], ["blocked", [1, 2]]]'
