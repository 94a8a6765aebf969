"""What sources found goes out as it comes, within what one host may send; what failed is a gap and an outcome."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.manifest import Outcome
from ncclprobe.probe import harvest as harvest_module
from ncclprobe.probe.crew import Ending
from ncclprobe.probe.harvest import Harvest, messages
from ncclprobe.probe.source import Context, Disturbance, Found, Options, Source
from ncclprobe.probe.stream import START_MARK, TarStream


class Output:
    """A harvest of one source, and what is in its stream."""

    def __init__(self, tmp_path: Path) -> None:
        self.bytes = io.BytesIO()
        self.spool = tmp_path
        self.harvest = Harvest("node1", TarStream(self.bytes), tmp_path)

    def collect(self, *items: Found | Gap, name: str = "gpu") -> None:
        """As if a source had yielded these."""
        context = Context(host="node1", processes=(), options=Options(), tools=self.spool, deadline=0)
        source = Source(name=name, disturbs=Disturbance.NOTHING, collect=lambda _: iter(items))
        for message in messages(source, context, self.spool):
            self.harvest.take(name, json.loads(json.dumps(message)))

    @property
    def members(self) -> Iterator[tuple[str, Any]]:
        """Name and content, of documents as objects."""
        assert self.bytes.getvalue().startswith(START_MARK)
        archive = io.BytesIO(self.bytes.getvalue()[len(START_MARK) :] + bytes(1024))
        with tarfile.open(fileobj=archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content
                data = content.read()
                yield member.name, json.loads(data) if member.name.endswith(".json") else data


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path)


def found(data: bytes = b"data", file: str = "x", **fields: Any) -> Found:
    return Found(file=file, kind=Kind.GPU, origin="test", data=data, **fields)


def test_an_artifact_is_in_the_stream_at_once_after_its_description(output: Output) -> None:
    output.collect(found(b"\0\xff", rank=0, pid=7, look=2, start_ns=1, end_ns=2, exit_status=0, pause_s=0.25))
    (_, item), (name, data) = output.members
    assert (name, data) == ("gpu/x", b"\0\xff")
    assert {key: item[key] for key in ("path", "kind", "host", "rank", "pid", "look", "truncated")} == {
        "path": "gpu/x",
        "kind": "gpu",
        "host": "node1",
        "rank": 0,
        "pid": 7,
        "look": 2,
        "truncated": False,
    }


def test_later_waves_can_read_it(output: Output) -> None:
    output.collect(found(b"abc"))
    (collected,) = output.harvest.collected
    assert collected.spool.read_bytes() == b"abc"
    assert collected.artifact.kind is Kind.GPU


def test_an_artifact_is_cut_at_its_limit(output: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harvest_module, "ARTIFACT_LIMIT_BYTES", 1000)
    output.collect(found(b"x" * 5000), found(b"y" * 1000, file="y"))
    (_, first), (_, data), (_, second), _ = output.members
    assert len(data) == 1000
    assert first["truncated"]
    assert not second["truncated"]


def test_a_host_may_send_so_much_and_says_once_that_it_was_more(output: Output) -> None:
    output.harvest._left_bytes = 1000
    output.collect(found(b"x" * 600), found(b"y" * 600, file="y"), found(b"z" * 400, file="z"), found(b"w", file="w"))
    assert [name for name, _ in output.members if name != "item.json"] == ["gpu/x", "gpu/z"]
    (gap,) = output.harvest.gaps
    assert gap.what == "gpu/y and maybe others"
    assert len(list(output.spool.iterdir())) == 2


def test_gaps_are_kept_and_a_flood_of_them_is_not(output: Output) -> None:
    output.collect(*(Gap(who="rank 1", what=str(number), why="y", action="a") for number in range(1000)))
    assert len(output.harvest.gaps) == harvest_module.MAX_GAPS
    assert output.harvest.gaps[0] == Gap(who="rank 1", what="0", why="y", action="a")


def test_outcomes_with_the_longest_pause(output: Output) -> None:
    output.collect(found(pause_s=0.1), found(pause_s=0.3, file="y"), found(pause_s=0.2, file="z"))
    output.harvest.end(Ending(name="gpu", outcome=Outcome.COMPLETE, seconds=1.23456))
    (outcome,) = output.harvest.outcomes
    assert (outcome.name, outcome.outcome, outcome.seconds, outcome.longest_pause_s) == (
        "gpu",
        Outcome.COMPLETE,
        1.235,
        0.3,
    )
    assert not output.harvest.gaps


def test_a_time_out_is_a_gap_that_says_how_far_it_came(output: Output) -> None:
    output.collect(found(file="gpu0.json"), found(file="gpu1.json"))
    output.harvest.end(Ending(name="gpu", outcome=Outcome.TIMED_OUT, seconds=10, why="it did not end in 10 s"))
    (gap,) = output.harvest.gaps
    assert (gap.who, gap.what) == ("node1", "gpu: what comes after gpu/gpu1.json")
    assert "dmesg" in gap.action
    output.harvest.end(Ending(name="stacks", outcome=Outcome.FAILED, seconds=1, why="ValueError: x"))
    assert output.harvest.gaps[1].what == "nothing of stacks"
