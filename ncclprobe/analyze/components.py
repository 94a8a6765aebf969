"""Which nodes of a graph can reach one another.

In: a graph as the targets of each node. Out: its strongly connected components.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeVar

Node = TypeVar("Node")


def components(graph: Mapping[Node, Sequence[Node]]) -> Iterator[list[Node]]:
    """Tarjan (1972), without recursion: jobs have thousands of ranks."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    on_stack: set[Node] = set()
    stack: list[Node] = []
    for start in list(graph):
        work = [(start, iter(graph.get(start, ())))] if start not in index else []
        while work:
            node, targets = work[-1]
            if node not in index:
                index[node] = low[node] = len(index)
                stack.append(node)
                on_stack.add(node)
            target = next((t for t in targets if t not in index or t in on_stack), None)
            if target is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    yield _pop_until(node, stack, on_stack)
            elif target not in index:
                work.append((target, iter(graph.get(target, ()))))
            else:
                low[node] = min(low[node], index[target])


def _pop_until(node: Node, stack: list[Node], on_stack: set[Node]) -> list[Node]:
    component = []
    while True:
        last = stack.pop()
        on_stack.discard(last)
        component.append(last)
        if last == node:
            return component
