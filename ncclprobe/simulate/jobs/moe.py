"""Megatron with a mixture of experts: tokens travel in uneven all_to_alls; sends and recvs one by one.

In: a number of ranks. Out: `JOB`, the calls of each rank in a step.
"""

from collections.abc import Iterator

from ncclprobe.simulate.calls import Call, Host
from ncclprobe.simulate.job import JobKind
from ncclprobe.simulate.layout import Layout
from ncclprobe.simulate.megatron import (
    HIDDEN,
    TOKENS,
    Model,
    all_reduce,
    collective,
    lay_out,
    step,
    tp_gather,
    tp_scatter,
)

_EXPERTS = 16


def _forward(layout: Layout) -> Iterator[Call]:
    yield tp_gather(layout, "tp.qkv")
    yield tp_scatter(layout, "tp.proj")
    yield all_reduce("tp_cp", _EXPERTS, "moe.router", "Long")
    counts = ((_EXPERTS,),), ((_EXPERTS * layout.size("etmp"),),)
    yield collective("etmp", "_all_gather_base", *counts, "Long", "moe.counts")
    yield _all_to_all(layout, (HIDDEN,), "moe.dispatch")
    yield _all_to_all(layout, (), "moe.dispatch")
    yield _all_to_all(layout, (HIDDEN,), "moe.combine")
    yield all_reduce("tp_dp", 264, "moe.router")


def _backward(layout: Layout) -> Iterator[Call]:
    yield tp_gather(layout, "tp.gather_backward", is_on_autograd=True)
    yield _all_to_all(layout, (HIDDEN,), "moe.backward", is_on_autograd=True)
    yield _all_to_all(layout, (HIDDEN,), "moe.backward", is_on_autograd=True)
    yield tp_scatter(layout, "tp.scatter_backward", is_on_autograd=True)


def _all_to_all(layout: Layout, features: tuple[int, ...], site: str, *, is_on_autograd: bool = False) -> Call:
    """As many tokens go out of every rank; how many arrive there is up to the router."""
    sizes = ((TOKENS // layout.size("tp"), *features),)
    kind = ("ep", "all_to_all", sizes, sizes, "BFloat16", site)
    return collective(*kind, is_uneven=True, is_on_autograd=is_on_autograd)


_MODEL = Model(forward=_forward, backward=_backward, is_batched=False)


def _step(layout: Layout, stage: int, is_logging: bool) -> Iterator[Call | Host]:
    yield from step(layout, stage, is_logging, _MODEL)


JOB = JobKind(name="moe", lay_out=lay_out, build_step=_step, log_every=5)
