"""Stacks of real ranks and their children; one that cannot be read keeps none of the others back."""

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from ncclprobe.model.evidence import Kind
from ncclprobe.model.job import Role
from ncclprobe.parse import stacks
from ncclprobe.probe import pyspy
from ncclprobe.probe.source import Found, Options
from ncclprobe.probe.sources import stacks as source_module
from ncclprobe.probe.sources.stacks import SOURCE
from tests.unit.probe.processes import running
from tests.unit.probe.sources.context import collect, context, process

IN_FUNCTION = "def {name}():\n import time; print('ready', flush=True); time.sleep(600)\n{name}()"


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A kit's folder with the real py-spy."""
    beside = Path(sys.executable).with_name("py-spy")
    (tmp_path / "py-spy").symlink_to(beside if beside.exists() else shutil.which("py-spy") or "")
    return tmp_path


def main_function(found: Found) -> str:
    (dump,) = stacks.parse(found.data).records
    assert dump.main
    return dump.main.stack[0].function


def test_ranks_at_two_looks_children_at_the_first(tools: Path) -> None:
    with running(IN_FUNCTION.format(name="reduce")) as rank, running(IN_FUNCTION.format(name="load")) as child:
        found, gaps = collect(SOURCE, context(process(rank), process(child, 0, Role.CHILD), tools=tools))
    assert not gaps
    by_name = {item.file: item for item in found}
    assert sorted(by_name) == [f"rank0-child{child}.look1.json", "rank0.look1.json", "rank0.look2.json"]
    assert main_function(by_name["rank0.look2.json"]) == "reduce"
    assert main_function(by_name[f"rank0-child{child}.look1.json"]) == "load"
    first = by_name["rank0.look1.json"]
    assert (first.kind, first.rank, first.pid, first.look, first.exit_status) == (Kind.STACKS, 0, rank, 1, 0)
    assert first.pause_s == 0


def test_c_frames_of_the_odd_one_out_and_of_one_of_the_others(tools: Path) -> None:
    code = [IN_FUNCTION.format(name=name) for name in ("reduce", "reduce", "load", "reduce")]
    options = Options(interval_s=0.1, native_stacks=True)
    with running(code[0]) as a, running(code[1]) as b, running(code[2]) as odd, running(code[3]) as c:
        ranks = [process(pid, rank) for rank, pid in enumerate((a, b, odd, c))]
        found, gaps = collect(SOURCE, context(*ranks, tools=tools, options=options))
    assert not gaps
    closer = {item.rank: item for item in found if item.look == 3}
    assert sorted(closer) == [0, 2]  # type: ignore[type-var]
    (dump,) = stacks.parse(closer[2].data).records
    assert dump.main
    assert dump.main.stack[0].is_native
    assert any(frame.function == "load" for frame in dump.main.stack)
    assert all(item.pause_s == 0 for item in found if item.look != 3)


def test_the_looks_are_an_interval_apart(tools: Path) -> None:
    with running() as pid:
        found, _ = collect(SOURCE, context(process(pid), tools=tools, options=Options(interval_s=0.7)))
    first, second = (item.start_ns or 0 for item in found)
    assert 0.6e9 < second - first < 5e9


def test_a_rank_that_is_gone_is_one_gap_and_not_asked_again(tools: Path) -> None:
    with running() as gone:
        pass
    with running() as pid:
        found, gaps = collect(SOURCE, context(process(gone, 0), process(pid, 1), tools=tools))
    assert [item.rank for item in found] == [1, 1]
    (gap,) = gaps
    assert (gap.who, gap.what, gap.why) == ("rank 0", "no stacks at look 1", "the process is gone")


def test_what_is_there_comes_before_one_that_blocks(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = pyspy.dump

    def slow_for_rank_0(program: Path, pid: int, **options: bool) -> pyspy.Dump:
        if pid == os.getpid():
            time.sleep(1.5)
        return real(program, pid, **options)

    monkeypatch.setattr(pyspy, "dump", slow_for_rank_0)
    with running() as pid:
        begin = time.monotonic()
        items = SOURCE.collect(context(process(os.getpid(), 0), process(pid, 1), tools=tools))
        item = next(items)
        assert time.monotonic() - begin < 1.2
    assert isinstance(item, Found)
    assert item.rank == 1


def test_of_very_many_children_some_of_each_rank_are_looked_at(tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "_MAX_CHILDREN", 3)
    pids = {}

    def note(_: Path, pid: int, **__: bool) -> pyspy.Dump:
        pids[pid] = True
        raise AssertionError

    monkeypatch.setattr(pyspy, "dump", note)
    children = [process(100 + n, 0, Role.CHILD) for n in range(5)] + [process(200 + n, 1, Role.CHILD) for n in range(5)]
    iterator = SOURCE.collect(context(process(1, 0), *children, tools=tools))
    gap = next(iterator)
    assert getattr(gap, "what", "") == "no stacks of 7 children of ranks"
    with pytest.raises(AssertionError):
        list(iterator)
    assert sorted(pids) == [1, 100, 101, 200]


def test_without_py_spy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found, (gap,) = collect(SOURCE, context(process(os.getpid()), tools=tmp_path))
    assert not found
    assert "architecture" in gap.why
    assert collect(SOURCE, context(tools=tmp_path)) == ([], [])


def test_only_if_stacks_are_wanted() -> None:
    assert not SOURCE.is_wanted(Options(stacks=False))


def test_the_interval_does_not_count_against_its_time() -> None:
    assert SOURCE.time_needed_s(Options(interval_s=100)) == SOURCE.timeout_s + 100
