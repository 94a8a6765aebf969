"""What a rank's program is made of: collectives, sends and recvs, and where the host waits.

In: nothing. Out: `Call`, `Part` and `Host`; a program is a sequence of calls and host actions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from enum import Enum

from ncclprobe.model.collectives import Sizes

# A rank's share of an uneven all_to_all, over and above the even one: it varies from call to call, as routed tokens do.
_SWING = (0, 93, -51, 12, 70, -104, 38, -45)


class Host(Enum):
    """What the host does besides issuing calls."""

    SYNC = "sync"
    """It waits for the GPU to finish what the current stream depends on: `loss.item()`."""
    WAIT_ASYNC = "wait-async"
    """The current stream waits for all asynchronous calls: `work.wait()` of DDP and of optimizers."""
    STOP = "stop"
    """It never comes back."""


@dataclass(frozen=True, slots=True)
class Part:
    """A send or a recv to a peer, by its rank inside the group."""

    is_send: bool
    peer: int
    sizes: Sizes
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """One call of a rank, on its group of `axis`. Of point-to-point, `parts` are one send or recv, or a whole batch.

    `is_async`: the current stream does not wait for it. `root` of a broadcast is done before the others are.
    `is_uneven`: sizes along the first dimension vary from member to member. `site` is a key of `sites.SITES`.
    """

    axis: str
    op: str
    inputs: Sizes = ()
    outputs: Sizes = ()
    dtype: str = "Float"
    site: str
    root: int | None = None
    is_async: bool = False
    is_uneven: bool = False
    is_on_autograd: bool = False
    timeout_ms: int = 600_000
    parts: tuple[Part, ...] = ()
    is_batch: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether it is point-to-point."""
        return bool(self.parts)

    @property
    def key(self) -> object:
        """Equal for equal calls; calls themselves are compared by identity, which is faster."""
        return tuple(getattr(self, known.name) for known in fields(self))

    @property
    def entries(self) -> int:
        """How many entries the recorder makes of it: of a batch one per part, and the one that ends it."""
        return len(self.parts) + self.is_batch if self.parts else 1

    def agrees_with(self, other: "Call") -> bool:
        """Whether NCCL can run the two as one collective. It checks none of this itself: it hangs, or worse."""
        if self is other:
            return True
        mine, theirs = ((c.op, c.dtype, c.root, () if c.is_uneven else (c.inputs, c.outputs)) for c in (self, other))
        return mine == theirs


Program = Sequence[Call | Host]


def shapes(call: Call, member: int, group_size: int, seq: int) -> tuple[Sizes, Sizes]:
    """The sizes one member records: input and output.

    What goes into an uneven all_to_all in all comes out of it in all; a gather has outputs on its root alone.
    """
    if call.op == "gather":
        return call.inputs, call.outputs if member == call.root else ()
    if not call.is_uneven:
        return call.inputs, call.outputs
    swing = _swing(seq, member) - _swing(seq, (member + 1) % group_size)
    return call.inputs, tuple((rows + swing, *rest) for rows, *rest in call.outputs)


def _swing(seq: int, member: int) -> int:
    return _SWING[(seq * 3 + member) % len(_SWING)]
