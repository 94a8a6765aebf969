"""What a person sees: the whole screen, compared with a file. `pytest --update-golden` writes the files anew."""

import io
from dataclasses import replace
from pathlib import Path

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.evidence import Gap
from ncclprobe.model.records import Evidence
from ncclprobe.report.renderer import find_renderers
from tests.evidence import both_looks, evidence, in_collective, processes
from tests.unit.analyze.test_verdict import demo

HERE = Path(__file__).parent


def screen(collected: Evidence, width: int = 80) -> str:
    stream = io.StringIO()
    find_renderers()["console"].write(analyze(collected), stream, width, False)
    return stream.getvalue()


def many_ranks(count: int) -> Evidence:
    places = {rank: in_collective("all_reduce", 2 + rank % 12) for rank in range(count)}
    return evidence(processes=processes(range(count), count), stacks=both_looks(places))


CASES = {
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


def test_no_line_is_wider_than_the_terminal() -> None:
    assert max(map(len, screen(demo(), width=60).splitlines())) <= 60


def test_escape_sequences_and_markup_in_evidence_do_nothing() -> None:
    hostile = Gap(who="\x1b[31mred", what="[bold]loud[/bold]", why="a\rb\x07", action="\u202eright to left")
    shown = screen(replace(demo(), gaps=(hostile,)))
    assert not set(shown) & {"\x1b", "\r", "\x07", "\u202e"}
    assert "[bold]loud[/bold]" in shown
