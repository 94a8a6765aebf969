"""Virtual time: runs the programs of all ranks until nothing moves any more.

In: a program per rank, and what is broken. Out: when each rank issued each call, and when it ended there, if it did.

As on CUDA, the host enqueues and runs ahead; it waits only where the program says so, or when the launch queue is full.
A call starts once the rank's current stream has come to it and the call before it on the same communicator has ended.
A collective ends when every member has started it, provided all members mean the same; a send ends with its recv. So
what never ends is what is still outstanding when no rank can move: no clock has to wait for it.
"""

from array import array
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ncclprobe.simulate.calls import Call, Host, Program
from ncclprobe.simulate.layout import Layout

NEVER = -1
LAUNCH_DEPTH = 100  # calls in flight before the host blocks: CUDA's queue holds 1,024 launches, ten to a call

_ISSUE_NS = 60_000  # host time per call
_COMPUTE_NS = 20_000_000  # GPU time before each call
_TRANSFER_NS = 400_000
_SWAY_NS = 700_000  # how much one rank's compute differs from another's

Instance = tuple[int, int, int, int]
"""Group index, sender, receiver (global ranks) and number of a send within the run; a collective has -1 for both."""


@dataclass(frozen=True, slots=True)
class Broken:
    """What never ends: whole calls, and all calls of a GPU (by rank) from its n-th one on, where its peers' do end."""

    calls: frozenset[Instance] = frozenset()
    gpus: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Run:
    """Of each rank's calls, in its order: when it was issued, and when it ended (NEVER where it did not), in ns."""

    issued: "array[int]"
    ended: "array[int]"


class _Node:
    """One rank's call."""

    __slots__ = ("after", "call", "ended", "index", "issued", "open_parts", "rank", "ready", "waits")

    def __init__(self, rank: int, index: int, call: Call, issued: int) -> None:
        self.rank, self.index, self.call, self.issued = rank, index, call, issued
        self.ready, self.ended = issued, NEVER
        self.waits = 0
        self.open_parts = max(1, len(call.parts))
        self.after: list[_Node] = []


class _Meeting:
    """One collective, or one send and its recv, while members arrive."""

    __slots__ = ("agrees", "nodes", "ready")

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.ready = 0
        self.agrees = True

    def join(self, node: _Node) -> None:
        if self.nodes and not node.call.is_p2p and not node.call.agrees_with(self.nodes[0].call):
            self.agrees = False
        self.nodes.append(node)
        self.ready = max(self.ready, node.ready)


class _RankState:
    """How far one rank's host and streams have come."""

    __slots__ = ("counts", "frontier", "host_ns", "last", "nodes", "position", "program", "unwaited")

    def __init__(self, program: Program) -> None:
        self.program = program
        self.position = 0
        self.host_ns = 0
        self.nodes: list[_Node] = []
        self.frontier: tuple[_Node, ...] = ()
        self.last: dict[object, _Node] = {}
        self.unwaited: list[_Node] = []
        self.counts: dict[object, int] = defaultdict(int)


def run(layout: Layout, programs: Sequence[Program], broken: Broken) -> list[Run]:
    """By rank. Deterministic: the times follow from the programs, not from the order of evaluation."""
    clock = _Clock(layout, programs, broken)
    clock.run()
    return [
        Run(array("q", (n.issued for n in state.nodes)), array("q", (n.ended for n in state.nodes)))
        for state in clock.states
    ]


class _Clock:
    def __init__(self, layout: Layout, programs: Sequence[Program], broken: Broken) -> None:
        self.layout = layout
        self.broken = broken
        self.states = [_RankState(program) for program in programs]
        self.meetings: dict[Instance, _Meeting] = defaultdict(_Meeting)
        self.hosts = deque(range(len(programs)))
        self.startable: deque[_Node] = deque()
        self.sleeping: dict[_Node, list[int]] = defaultdict(list)

    def run(self) -> None:
        while self.hosts or self.startable:
            while self.startable:
                self._start(self.startable.popleft())
            if self.hosts:
                self._advance(self.hosts.popleft())

    def _advance(self, rank: int) -> None:
        """Lets the host run until it stops, or must wait."""
        state = self.states[rank]
        while state.position < len(state.program):
            op = state.program[state.position]
            if op is Host.STOP:
                return
            blocker = self._blocker(state, op)
            if blocker is not None:
                self.sleeping[blocker].append(rank)
                return
            state.position += 1
            if isinstance(op, Call):
                self._issue(rank, state, op)
            elif op is Host.WAIT_ASYNC:
                state.frontier = (*state.frontier, *state.unwaited)
                state.unwaited = []

    def _blocker(self, state: _RankState, op: Call | Host) -> _Node | None:
        """What the host has to wait for first, if anything; else its clock moves past what it has waited for."""
        if op is Host.SYNC:
            waited: Sequence[_Node] = state.frontier
        elif isinstance(op, Call) and len(state.nodes) >= LAUNCH_DEPTH:
            waited = (state.nodes[-LAUNCH_DEPTH],)
        else:
            return None
        blocker = next((node for node in waited if node.ended == NEVER), None)
        if blocker is None:
            state.host_ns = max([state.host_ns, *(node.ended for node in waited)])
        return blocker

    def _issue(self, rank: int, state: _RankState, call: Call) -> None:
        state.host_ns += _ISSUE_NS
        node = _Node(rank, len(state.nodes), call, state.host_ns)
        state.nodes.append(node)
        stream = self._stream(call)
        previous = state.last.get(stream)
        self._depend(node, state.frontier if previous is None else (*state.frontier, previous))
        state.last[stream] = node
        if call.is_async:
            state.unwaited.append(node)
        else:
            state.frontier = (node,)

    def _stream(self, call: Call) -> object:
        """Single sends and recvs have a communicator for each pair of ranks, batches use that of their group."""
        if call.is_p2p and not call.is_batch:
            return call.axis, call.parts[0].peer
        return call.axis

    def _depend(self, node: _Node, earlier: Sequence[_Node]) -> None:
        sway = (node.rank * 7919 + node.index * 104_729) % _SWAY_NS
        node.ready = node.issued
        for other in earlier:
            if other.ended == NEVER:
                other.after.append(node)
                node.waits += 1
            else:
                node.ready = max(node.ready, other.ended)
        node.ready += _COMPUTE_NS + sway
        if not node.waits:
            self.startable.append(node)

    def _start(self, node: _Node) -> None:
        """The GPU has come to the call: it meets the other members there."""
        if node.index > self.broken.gpus.get(node.rank, node.index):
            return
        for instance, size in self._instances(node):
            meeting = self.meetings[instance]
            meeting.join(node)
            if len(meeting.nodes) == size:
                del self.meetings[instance]
                if meeting.agrees and instance not in self.broken.calls:
                    self._end(meeting)
        if node.call.op == "broadcast" and node.call.root == self.layout.axes[node.call.axis].member[node.rank]:
            self._end_node(node, node.ready + _TRANSFER_NS)

    def _instances(self, node: _Node) -> Iterator[tuple[Instance, int]]:
        """What the call takes part in, and how many meet there."""
        call, rank, counts = node.call, node.rank, self.states[node.rank].counts
        group = self.layout.axes[call.axis].group[rank]
        if not call.is_p2p:
            number = counts[call.axis]
            counts[call.axis] += 1
            yield (group, -1, -1, number), len(self.layout.groups[group].ranks)
            return
        for part in call.parts:
            peer = self.layout.group("pp", rank).ranks[part.peer]
            ends = (rank, peer) if part.is_send else (peer, rank)
            number = counts[call.axis, ends]
            counts[call.axis, ends] += 1
            yield (group, *ends, number), 2

    def _end(self, meeting: _Meeting) -> None:
        for node in meeting.nodes:
            node.open_parts -= 1
            node.ready = max(node.ready, meeting.ready)
            if not node.open_parts:
                self._end_node(node, node.ready + _TRANSFER_NS)

    def _end_node(self, node: _Node, time_ns: int) -> None:
        if node.ended != NEVER or node.index >= self.broken.gpus.get(node.rank, node.index + 1):
            return
        node.ended = time_ns
        for later in node.after:
            later.ready = max(later.ready, time_ns + _COMPUTE_NS)
            later.waits -= 1
            if not later.waits:
                self.startable.append(later)
        node.after = []
        self.hosts.extend(self.sleeping.pop(node, ()))
