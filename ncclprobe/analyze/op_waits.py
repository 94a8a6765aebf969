"""Who waits for whom, by the operations that each rank issued last.

In: `OpGroup`s that are alike as far as they go. Out: `OpRoot`s: ranks that others wait for and that wait for nobody, or
that wait for one another in a ring; messages whose two ends differ.

A rank that issued fewer operations of a communicator than another one holds that one up; of a send and a recv each
holds up the other end until it is issued. A rank may run far ahead of its GPU, so being ahead proves nothing: only who
is waited for, and is ahead of nobody itself, is a root.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ncclprobe.analyze.components import components
from ncclprobe.analyze.op_groups import P2P, OpGroup, Trace
from ncclprobe.model.collectives import Signature
from ncclprobe.model.log import OpTrace


@dataclass(frozen=True, slots=True, kw_only=True)
class Debt:
    """A direction of a pair in which one end issued `count` more than the other; `owing` has to make up for them."""

    owing: int
    other: int
    missing: str
    count: int
    group: str
    of_owing: Trace
    of_other: Trace


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """`behind` issued only `count` collectives of the group, where `ahead` issued `furthest`."""

    behind: tuple[int, ...]
    count: int
    furthest: int
    ahead: tuple[int, ...]
    group: OpGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class OpRoot:
    """`is_ring`: its ranks wait for one another. What others wait for: `debts` of messages, `lags` in collectives."""

    ranks: tuple[int, ...]
    is_ring: bool
    debts: tuple[Debt, ...] = ()
    lags: tuple[Lag, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnlikeMessage:
    """The same message, the `number`-th from one end to the other, with another size on either end."""

    source: int
    target: int
    number: int
    sent: Signature
    received: Signature
    group: str
    of_source: Trace
    of_target: Trace


Node = int | tuple[str, int]


def find_op_roots(groups: Sequence[OpGroup]) -> tuple[OpRoot, ...]:
    """In order of ranks. A group is a node of its own, so that edges stay linear in ranks."""
    lags = [lag for group in groups if (lag := _lag(group))]
    debts = [debt for group in groups for debt in _debts(group)]
    graph: dict[Node, list[Node]] = defaultdict(list)
    for number, lag in enumerate(lags):
        node = (lag.group.name, number)
        graph[node].extend(lag.behind)
        for rank in lag.ahead:
            graph[rank].append(node)
    for debt in debts:
        graph[debt.other].append(debt.owing)
    roots = (_root(component, graph, lags, debts) for component in components(dict(graph)))
    return tuple(sorted((root for root in roots if root), key=lambda root: root.ranks))


def _root(
    component: list[Node], graph: Mapping[Node, Sequence[Node]], lags: list[Lag], debts: list[Debt]
) -> OpRoot | None:
    members = set(component)
    ranks = tuple(sorted(node for node in component if isinstance(node, int)))
    if not ranks or any(target not in members for node in component for target in graph.get(node, ())):
        return None
    return OpRoot(
        ranks=ranks,
        is_ring=len(component) > 1,
        debts=tuple(debt for debt in debts if debt.owing in members),
        lags=tuple(lag for lag in lags if members & set(lag.behind)),
    )


def _lag(group: OpGroup) -> Lag | None:
    counts = {rank: _collectives(trace.record, by_count=group.by_count) for rank, trace in group.traces.items()}
    if not group.by_count:
        counts.update(dict.fromkeys(group.idle, 0))
    lowest, furthest = min(counts.values()), max(counts.values())
    if lowest == furthest:
        return None
    return Lag(
        behind=tuple(rank for rank, count in counts.items() if count == lowest),
        count=lowest,
        furthest=furthest,
        ahead=tuple(rank for rank, count in counts.items() if count > lowest),
        group=group,
    )


def _collectives(trace: OpTrace, *, by_count: bool) -> int:
    if by_count:
        return trace.op_count[-1]
    return trace.left_out + sum(trace.signatures[number].op not in P2P for number in trace.signature_of)


_Messages = dict[tuple[int, int, str], list[Signature]]
"""By sender, receiver (global ranks) and which end issued it."""


def _messages(group: OpGroup) -> _Messages:
    rank_of = {number: rank for rank, number in group.numbers.items()}
    found: _Messages = defaultdict(list)
    for rank, trace in group.traces.items():
        record = trace.record
        if record.left_out:
            continue
        for row, number in enumerate(record.signature_of):
            signature, peer = record.signatures[number], rank_of.get(record.root[row])
            if signature.op in P2P and peer is not None and not group.traces[peer].record.left_out:
                source, target = (rank, peer) if signature.op == "send" else (peer, rank)
                found[source, target, signature.op].append(signature)
    return found


def _pairs(messages: _Messages) -> Iterator[tuple[int, int, list[Signature], list[Signature]]]:
    for source, target in sorted({(source, target) for source, target, _ in messages}):
        yield source, target, messages.get((source, target, "send"), []), messages.get((source, target, "recv"), [])


def _debts(group: OpGroup) -> Iterator[Debt]:
    for source, target, sent, received in _pairs(_messages(group)):
        if len(sent) != len(received):
            owing, other, missing = (source, target, "send") if len(sent) < len(received) else (target, source, "recv")
            yield Debt(
                owing=owing,
                other=other,
                missing=missing,
                count=abs(len(sent) - len(received)),
                group=group.name,
                of_owing=group.traces[owing],
                of_other=group.traces[other],
            )


def find_unlike_messages(groups: Iterable[OpGroup]) -> Iterator[UnlikeMessage]:
    """The first of each pair."""
    for group in groups:
        for source, target, sent, received in _pairs(_messages(group)):
            both = enumerate(zip(sent, received, strict=False), start=1)
            unlike = next(((n, one, two) for n, (one, two) in both if one.input_sizes != two.input_sizes), None)
            if unlike:
                yield UnlikeMessage(
                    source=source,
                    target=target,
                    number=unlike[0],
                    sent=unlike[1],
                    received=unlike[2],
                    group=group.name,
                    of_source=group.traces[source],
                    of_target=group.traces[target],
                )
