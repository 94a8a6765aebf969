"""What a person sees: the whole screen, compared with a file. `pytest --update-golden` writes the files anew."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.evidence import Gap
from ncclprobe.model.records import Evidence
from ncclprobe.report.renderer import find_renderers
from tests.evidence import both_looks, dumps, evidence, host, in_collective, mixed, processes, recording
from tests.unit.analyze.test_verdict import demo

HERE = Path(__file__).parent


def screen(collected: Evidence, width: int = 80) -> str:
    stream = io.StringIO()
    find_renderers()["console"].write(analyze(collected), stream, width, False)
    return stream.getvalue()


def many_ranks(count: int) -> Evidence:
    places = {rank: in_collective("all_reduce", 2 + rank % 12) for rank in range(count)}
    return evidence(processes=processes(range(count), count), stacks=both_looks(places))


def one_host_missing() -> Evidence:
    """16 ranks on four hosts. Those of node1 are in no call; most wait for them, and on node3 three for the fourth."""
    columns, rows = [tuple(range(i, 16, 4)) for i in range(4)], [tuple(range(i, i + 4)) for i in range(0, 16, 4)]
    waiting = {rank: mixed((f"2{rank % 4}", columns[rank % 4], "all_reduce", 118)) for rank in (*rows[0], *rows[2], 12)}
    waiting |= {rank: mixed(("13", rows[3], "all_gather", 40)) for rank in (13, 14, 15)}
    named = {"1": "TENSOR_MODEL_PARALLEL_GROUP", "2": "DATA_PARALLEL_GROUP"}
    described = {
        rank: replace(made, groups=tuple(replace(group, description=named[group.name[0]]) for group in made.groups))
        for rank, made in waiting.items()
    }
    idle = {rank: recording([], ranks=range(16)) for rank in range(4, 8)}
    return evidence(
        hosts=tuple(host(f"node{n}") for n in range(4)),
        processes=sum((processes(rows[n], 16, f"node{n}") for n in range(4)), ()),
        recordings=dumps({**described, **idle}),
    )


CASES = {
    "one-host-missing": lambda: screen(one_host_missing()),
    "extra-with-dumps": lambda: screen(demo()),
    "extra-from-stacks": lambda: screen(demo(recordings=())),
    "no-evidence": lambda: screen(evidence(hosts=())),
    "many-classes": lambda: screen(many_ranks(4096)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_screen_looks_as_agreed(name: str, request: pytest.FixtureRequest) -> None:
    path = HERE / f"{name}.txt"
    seen = CASES[name]()
    if request.config.getoption("--update-golden"):
        path.write_text(seen)
    assert seen == path.read_text()


def test_one_screen_at_any_world_size() -> None:
    assert len(screen(many_ranks(4096)).splitlines()) <= 50


@pytest.mark.parametrize("has_color", [False, True])
def test_no_line_ends_in_blanks(has_color: bool) -> None:
    stream = io.StringIO()
    find_renderers()["console"].write(analyze(demo()), stream, 80, has_color)
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in stream.getvalue().splitlines()]
    assert not [line for line in lines if line != line.rstrip()]


def test_many_guilty_hosts_are_counted() -> None:
    report = analyze(demo())
    hosts = tuple(f"node{n}" for n in range(200))
    many = replace(report, verdict=replace(report.verdict, guilty_ranks=tuple(range(200)), guilty_hosts=hosts))
    stream = io.StringIO()
    find_renderers()["console"].write(many, stream, 80, False)
    assert "ranks 0-199 on node0, node1, node2, node3, ... (200 hosts)" in " ".join(stream.getvalue().split())


def test_no_line_is_wider_than_the_terminal() -> None:
    assert max(map(len, screen(demo(), width=60).splitlines())) <= 60


def test_escape_sequences_and_markup_in_evidence_do_nothing() -> None:
    hostile = Gap(who="\x1b[31mred", what="[bold]loud[/bold]", why="a\rb\x07", action="\u202eright to left")
    shown = screen(replace(demo(), gaps=(hostile,)))
    assert not set(shown) & {"\x1b", "\r", "\x07", "\u202e"}
    assert "[bold]loud[/bold]" in shown
