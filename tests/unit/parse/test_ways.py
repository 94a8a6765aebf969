"""By which statements a rank can get past lines that the others come to."""

import pytest

from ncclprobe.model.source import SourceFile, Way, WayKind
from ncclprobe.parse.user_code import parse

TRAIN = """
for epoch in epochs:
    for batch in loader:
        count(batch)  # COUNT
        if batch.is_empty:
            continue
        backward(batch)  # BACKWARD
        try:
            save()
        except OSError:
            break
    barrier()  # BARRIER
finish()  # FINISH
"""


def read(source: str) -> SourceFile:
    return parse(source.encode()).records[0]


def line_of(file: SourceFile, mark: str) -> int:
    return next(number for number, line in enumerate(file.lines, start=1) if mark in line)


def ways(source: str, past: str, stands_at: str) -> list[tuple[WayKind, str, str | None]]:
    file = read(source)
    found = file.ways_past(line_of(file, past), line_of(file, stands_at))
    return [(way.kind, file.line(way.line) or "", way.condition) for way in found]


def test_a_continue_leads_past_what_comes_after_it_and_back_to_the_start() -> None:
    assert ways(TRAIN, "BACKWARD", "COUNT") == [(WayKind.CONTINUE, "continue", "if batch.is_empty (line 5)")]
    assert ways(TRAIN, "COUNT", "BACKWARD") == []


def test_who_stands_behind_a_loop_has_left_it_by_break_or_at_its_end() -> None:
    assert ways(TRAIN, "BACKWARD", "BARRIER") == [
        (WayKind.END, "for batch in loader:", None),
        (WayKind.BREAK, "break", "except OSError (line 10)"),
    ]
    assert ways(TRAIN, "BARRIER", "FINISH") == [(WayKind.END, "for epoch in epochs:", None)]


@pytest.mark.parametrize(
    ("turns", "is_way"),
    [
        ("for step in range(1, args.steps + 1):", False),
        ("for step in range(len(loader)):", True),
        ("for step, batch in enumerate(loader):", True),
        ("while step < limit:", True),
        ("while True:", False),
    ],
)
def test_a_loop_that_counts_to_a_shared_number_ends_alike_everywhere(turns: str, is_way: bool) -> None:
    source = f"{turns}\n    backward()  # LOOP\n    if over():\n        break\nbarrier()  # AFTER\n"
    kinds = [kind for kind, _, _ in ways(source, "LOOP", "AFTER")]
    assert kinds == ([WayKind.END, WayKind.BREAK] if is_way else [WayKind.BREAK])


def test_without_another_way_out_even_a_counting_loop_has_ended() -> None:
    source = "for step in range(args.steps):\n    backward()  # LOOP\nbarrier()  # AFTER\n"
    assert [kind for kind, _, _ in ways(source, "LOOP", "AFTER")] == [WayKind.END]


def test_a_function_inside_a_loop_is_not_of_the_loop() -> None:
    source = "for x in y:\n    def f():\n        for a in b:\n            break\n"
    assert [(way.kind, way.loop_line) for way in read(source).ways] == [
        (WayKind.END, 1),
        (WayKind.END, 3),
        (WayKind.BREAK, 3),
    ]


def test_all_kinds_of_conditions_are_told() -> None:
    source = (
        "while more():\n    if a:\n        pass\n    else:\n        break\n"
        "    match b:\n        case 1:\n            continue\n    with c:\n        continue\n"
    )
    assert [way.condition for way in read(source).ways if way.kind is not WayKind.END] == [
        "else of if a (line 2)",
        "case 1 (line 7)",
        None,
    ]


def test_a_way_covers_the_lines_it_leads_past() -> None:
    (way,) = (way for way in read(TRAIN).ways if way.kind is WayKind.CONTINUE)
    assert way == Way(
        kind=WayKind.CONTINUE,
        line=6,
        condition="if batch.is_empty (line 5)",
        first_line=7,
        last_line=11,
        loop_line=3,
    )
