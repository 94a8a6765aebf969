"""The user's source files: which lines only some ranks reach, and by which way one can get past others.

In: the text of a Python file. Out: one `SourceFile` with its lines, its rank-dependent branches and its ways.
"""

import ast
import re
import warnings
from collections.abc import Iterator, Sequence
from functools import reduce

from ncclprobe.model.errors import ParseError
from ncclprobe.model.source import Branch, RankSet, SourceFile, Way
from ncclprobe.parse.bindings import find_bindings
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.rank_sets import both, either, only, others
from ncclprobe.parse.rank_tests import RankTests, asks_more
from ncclprobe.parse.text import clean, decoded
from ncclprobe.parse.ways import find_ways

MAX_BYTES = 4 << 20
_MAX_TEXT = 120
_MAX_LINE = 500
_LEAVES = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_EXITS = re.compile(r"(sys\.|os\.)?_?(exit|quit|abort)")
_DECORATORS = re.compile(r"(^|\.)(rank_zero_only|main_process_only|master_only|on_main_process)$")
_LOCAL_DECORATORS = re.compile(r"(^|\.)(on_local_main_process|local_rank_zero_only)$")


def parse(data: bytes) -> Parsed[SourceFile]:
    """Lines and branches; ParseError when the bytes are no text, a problem when Python cannot parse it."""
    if len(data) > MAX_BYTES:
        raise ParseError(f"refused: a source file of {len(data) >> 20} MiB is larger than any that a person wrote")
    text = decoded(data, "source code")
    branches: tuple[Branch, ...] = ()
    ways: tuple[Way, ...] = ()
    problems: tuple[str, ...] = ()
    try:
        tree = _tree(text)
        branches, ways = _branches(tree), find_ways(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        problems = (f"Python cannot parse it: {clean(str(error), _MAX_TEXT)}",)
    # Lines as Python counts them: str.splitlines also ends a line at form feeds and other marks.
    lines = tuple(clean(line, _MAX_LINE) for line in re.split(r"\r\n|\r|\n", text))
    return Parsed(records=(SourceFile(lines=lines, branches=branches, ways=ways),), problems=problems)


def _tree(text: str) -> ast.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of invalid escapes and the like in the user's code
        return ast.parse(text)


def _branches(tree: ast.Module) -> tuple[Branch, ...]:
    return tuple(_Walk(RankTests(find_bindings(tree))).through(tree.body, None))


class _Walk:
    """Goes through blocks from the outside in. `reach` is who reaches a block at all: None for anybody."""

    def __init__(self, tests: RankTests) -> None:
        self.tests = tests

    def through(self, block: Sequence[ast.stmt], reach: RankSet | None) -> Iterator[Branch]:
        """The branches of one block. After `if rank != 0: return`, the rest of the block is one, too."""
        for position, node in enumerate(block):
            yield from self._statement(node, reach)
            rest = block[position + 1 :]
            stays = self._staying(node) if rest else None
            if stays is not None and isinstance(node, ast.If):
                reach = both(reach, stays)
                leaving = node.body if _leaves(node.body) else node.orelse
                text = f"after if {ast.unparse(node.test)}: {ast.unparse(leaving[-1])}"
                yield from _branch(rest, node.lineno, text, reach)

    def _statement(self, node: ast.stmt, reach: RankSet | None) -> Iterator[Branch]:
        if isinstance(node, (ast.If, ast.While)):
            yield from self._of_if(node, reach)
        elif isinstance(node, ast.Match):
            yield from self._of_match(node, reach)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from self._of_function(node, reach)
        elif isinstance(getattr(node, "value", None), ast.IfExp):
            yield from self._of_expression(node.value, reach)  # type: ignore[attr-defined]
        else:
            for block in ("body", "orelse", "finalbody"):
                yield from self.through(getattr(node, block, ()), reach)
            for handler in getattr(node, "handlers", ()):
                yield from self.through(handler.body, reach)

    def _of_if(self, node: ast.If | ast.While, reach: RankSet | None) -> Iterator[Branch]:
        word = "if" if isinstance(node, ast.If) else "while"
        text = f"{word} {ast.unparse(node.test)}"
        taken = self.tests.passing(node.test)
        if node.body[0].lineno == node.test.end_lineno and asks_more(node.test):
            taken = None  # the line is also that of a call in the test, which all ranks make
        other = self.tests.passing(node.test, holds=False) if word == "if" else None
        yield from self._block(node.body, node.lineno, text, reach, taken)
        yield from self._block(node.orelse, node.lineno, f"else of {text}", reach, other)

    def _of_match(self, node: ast.Match, reach: RankSet | None) -> Iterator[Branch]:
        left: RankSet | None = None
        for case in node.cases:
            taken = self._of_pattern(node.subject, case.pattern)
            text = f"case {ast.unparse(case.pattern)} of match {ast.unparse(node.subject)}"
            yield from self._block(case.body, case.pattern.lineno, text, reach, both(left, taken))
            if case.guard is None:
                left = both(left, others(taken))

    def _of_pattern(self, subject: ast.expr, pattern: ast.pattern) -> RankSet | None:
        if isinstance(pattern, ast.MatchOr):
            return reduce(either, (self._of_pattern(subject, part) for part in pattern.patterns))
        return self.tests.equal_to(subject, pattern.value) if isinstance(pattern, ast.MatchValue) else None

    def _of_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, reach: RankSet | None) -> Iterator[Branch]:
        for decorator in node.decorator_list:
            name = ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)
            if _DECORATORS.search(name) or _LOCAL_DECORATORS.search(name):
                reach = both(reach, only([0], is_local=bool(_LOCAL_DECORATORS.search(name))))
                yield from _branch(node.body, decorator.lineno, f"@{name}", reach)
        yield from self.through(node.body, reach)

    def _of_expression(self, node: ast.IfExp, reach: RankSet | None) -> Iterator[Branch]:
        """`x = f() if rank == 0 else None`; an arm that shares its line with another call says nothing."""
        text = f"... if {ast.unparse(node.test)} else ..."
        for arm, holds in ((node.body, True), (node.orelse, False)):
            ranks = self.tests.passing(node.test, holds=holds)
            other = node.orelse if holds else node.body
            if ranks is not None and not asks_more(node.test) and not (_shares_line(arm, other) and _calls(other)):
                yield from _branch([arm], node.lineno, text, both(reach, ranks))

    def _block(
        self, block: Sequence[ast.stmt], line: int, text: str, reach: RankSet | None, ranks: RankSet | None
    ) -> Iterator[Branch]:
        if ranks is not None and block:
            reach = both(reach, ranks)
            yield from _branch(block, line, text, reach)
        yield from self.through(block, reach)

    def _staying(self, node: ast.stmt) -> RankSet | None:
        """Who goes on after an `if` in which one side leaves."""
        if not isinstance(node, ast.If) or _leaves(node.body) == _leaves(node.orelse):
            return None
        return self.tests.passing(node.test, holds=_leaves(node.orelse))


def _branch(block: Sequence[ast.stmt | ast.expr], line: int, text: str, ranks: RankSet | None) -> Iterator[Branch]:
    """None for what anybody, or nobody, can reach."""
    if ranks is not None and ranks.ranks:
        first, last = block[0].lineno, block[-1].end_lineno or block[-1].lineno
        yield Branch(first_line=first, last_line=last, line=line, text=clean(text, _MAX_TEXT), taken_by=ranks)


def _leaves(block: Sequence[ast.stmt]) -> bool:
    last = block[-1] if block else None
    if isinstance(last, ast.If):
        return _leaves(last.body) and _leaves(last.orelse)
    if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        return bool(_EXITS.fullmatch(ast.unparse(last.value.func)))
    return isinstance(last, _LEAVES)


def _shares_line(one: ast.expr, two: ast.expr) -> bool:
    return one.lineno <= (two.end_lineno or two.lineno) and two.lineno <= (one.end_lineno or one.lineno)


def _calls(node: ast.expr) -> bool:
    return any(isinstance(part, (ast.Call, ast.Await)) for part in ast.walk(node))
