"""What the names of a Python file are bound to, wherever in it.

In: a syntax tree. Out: per name, or last part of an attribute, the nodes that bind it: the value assigned where it is
plain, else the loop, parameter or statement that does it.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator

Bindings = dict[str, list[ast.AST]]


def find_bindings(tree: ast.AST) -> Bindings:
    """All bindings, in no particular order; scopes are not told apart."""
    bindings: Bindings = defaultdict(list)
    for node in ast.walk(tree):
        for name, value in _bound_by(node):
            bindings[name].append(value)
    return dict(bindings)


def _bound_by(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _pairs(target, node.value)
    elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None:
        yield from _pairs(node.target, node.value)
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension, ast.AugAssign)):
        yield from _pairs(node.target, node)
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        yield from _pairs(node.optional_vars, node)
    elif isinstance(node, ast.arg):
        yield node.arg, node


def _pairs(target: ast.expr, value: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """`a, b = x, y` binds pairwise; `a, b = f()` binds each to the whole."""
    if isinstance(target, (ast.Tuple, ast.List)):
        is_pairwise = isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts)
        values = value.elts if is_pairwise else [value] * len(target.elts)  # type: ignore[attr-defined]
        for part, part_value in zip(target.elts, values, strict=True):
            yield from _pairs(part, part_value)
    elif isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Attribute):
        yield target.attr, value
