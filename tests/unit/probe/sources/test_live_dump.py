"""Whom the injection leaves alone: ranks that have answered in a gentler way."""

from pathlib import Path

import pytest

from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.probe.plugins import find_sources
from ncclprobe.probe.source import Collected
from ncclprobe.probe.sources import live_dump
from ncclprobe.probe.sources.live_dump import SOURCE
from tests.unit.probe.sources.context import collect, context, process


def dump(rank: int, pid: int | None) -> Collected:
    artifact = Artifact(path="x", kind=Kind.FLIGHT_RECORDER, host="node1", origin="/d", rank=rank, pid=pid)
    return Collected(artifact=artifact, spool=Path("/none"))


def test_only_ranks_that_were_not_asked_yet_are_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("injector.so", "injection.so"):
        (tmp_path / name).touch()
    asked = []
    monkeypatch.setattr(live_dump, "_ask", lambda one, libraries, spy: asked.append(one.rank) or ())
    earlier = (dump(0, pid=10), dump(1, pid=None))  # rank 1 has only a file that torch wrote by itself
    collect(SOURCE, context(process(10, 0), process(11, 1), process(12, 2), tools=tmp_path, earlier=earlier))
    assert asked == [1, 2]


def test_when_all_have_answered_its_libraries_are_not_missed() -> None:
    assert collect(SOURCE, context(process(10, 0), earlier=(dump(0, pid=10),))) == ([], [])


def test_pipe_then_server_then_injection_then_source_files() -> None:
    waves = {source.name: source.wave for source in find_sources()}
    order = ("stacks", "flight_recorder", "dump_pipe", "worker_server", "live_dump", "user_code")
    assert waves["stacks"] == waves["flight_recorder"]
    assert [waves[name] for name in order[1:]] == sorted({waves[name] for name in order})
