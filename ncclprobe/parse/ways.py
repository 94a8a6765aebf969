"""Statements by which one rank can leave a loop, or jump over a part of it, while the others stay.

In: the syntax tree of a user's file. Out: its `Way`s: each `continue` and `break`, and the end of each loop.
"""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ncclprobe.model.source import Way, WayKind
from ncclprobe.parse.text import clean

_MAX_TEXT = 120
_SAME_FOR_ALL = "range"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What is around a statement: the innermost loop, and the condition inside of it that leads here."""

    loop: ast.For | ast.AsyncFor | ast.While | None = None
    condition: str | None = None


def find_ways(tree: ast.Module) -> tuple[Way, ...]:
    """In the order of their lines."""
    return tuple(sorted(_through(tree.body, _Place()), key=lambda way: (way.line, way.kind.value)))


def _through(block: Sequence[ast.stmt], place: _Place) -> Iterator[Way]:
    for node in block:
        if isinstance(node, ast.Continue | ast.Break):
            yield from _of_jump(node, place)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            yield from _of_loop(node, place)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _through(node.body, _Place())
        else:
            yield from _of_blocks(node, place)


def _of_jump(node: ast.Continue | ast.Break, place: _Place) -> Iterator[Way]:
    loop = place.loop
    if loop is None:
        return
    is_break = isinstance(node, ast.Break)
    yield Way(
        kind=WayKind.BREAK if is_break else WayKind.CONTINUE,
        line=node.lineno,
        condition=place.condition,
        first_line=loop.body[0].lineno if is_break else node.lineno + 1,
        last_line=_end(loop.body),
        loop_line=loop.lineno,
    )


def _of_loop(node: ast.For | ast.AsyncFor | ast.While, place: _Place) -> Iterator[Way]:
    if not _is_endless(node):
        yield Way(
            kind=WayKind.END,
            line=node.lineno,
            condition=None,
            first_line=node.body[0].lineno,
            last_line=_end(node.body),
            loop_line=node.lineno,
            is_same_for_all=_counts_alike(node),
        )
    yield from _through(node.body, _Place(loop=node))
    yield from _through(node.orelse, place)


def _is_endless(node: ast.For | ast.AsyncFor | ast.While) -> bool:
    return isinstance(node, ast.While) and isinstance(node.test, ast.Constant) and bool(node.test.value)


def _counts_alike(node: ast.For | ast.AsyncFor | ast.While) -> bool:
    """Whether it counts to a number that is no length: a setting, which all ranks share."""
    turns = node.test if isinstance(node, ast.While) else node.iter
    if not isinstance(turns, ast.Call) or not isinstance(turns.func, ast.Name) or turns.func.id != _SAME_FOR_ALL:
        return False
    return not any(isinstance(part, ast.Call) for argument in turns.args for part in ast.walk(argument))


def _of_blocks(node: ast.stmt, place: _Place) -> Iterator[Way]:
    if isinstance(node, ast.If):
        text = f"if {ast.unparse(node.test)}"
        yield from _through(node.body, _under(place, text, node.lineno))
        yield from _through(node.orelse, _under(place, f"else of {text}", node.lineno))
        return
    for block in ("body", "orelse", "finalbody"):
        yield from _through(getattr(node, block, ()), place)
    for handler in getattr(node, "handlers", ()):
        text = f"except {ast.unparse(handler.type)}" if handler.type else "except"
        yield from _through(handler.body, _under(place, text, handler.lineno))
    for case in getattr(node, "cases", ()):
        yield from _through(case.body, _under(place, f"case {ast.unparse(case.pattern)}", case.pattern.lineno))


def _under(place: _Place, text: str, line: int) -> _Place:
    return replace(place, condition=f"{clean(text, _MAX_TEXT)} (line {line})")


def _end(block: Sequence[ast.stmt]) -> int:
    return block[-1].end_lineno or block[-1].lineno
