"""Megatron, dense: tensor (sequence), pipeline and data parallel; sends and recvs in batches.

In: a number of ranks. Out: `JOB`, the calls of each rank in a step.
"""

from collections.abc import Iterator

from ncclprobe.simulate.calls import Call, Host
from ncclprobe.simulate.job import JobKind
from ncclprobe.simulate.layout import Layout
from ncclprobe.simulate.megatron import Model, lay_out, step, tp_gather, tp_scatter

_LAYERS = 2


def _forward(layout: Layout) -> Iterator[Call]:
    for _ in range(_LAYERS):
        yield tp_gather(layout, "tp.qkv")
        yield tp_scatter(layout, "tp.proj")
        yield tp_gather(layout, "tp.fc1")
        yield tp_scatter(layout, "tp.fc2")


def _backward(layout: Layout) -> Iterator[Call]:
    """Each of the two halves of a layer gathers twice (the gradient, and its input again) and scatters once."""
    for _ in range(2 * _LAYERS):
        yield tp_gather(layout, "tp.gather_backward", is_on_autograd=True)
        yield tp_gather(layout, "tp.gather_backward", is_on_autograd=True)
        yield tp_scatter(layout, "tp.scatter_backward", is_on_autograd=True)


_MODEL = Model(forward=_forward, backward=_backward, is_batched=True)


def _step(layout: Layout, stage: int, is_logging: bool) -> Iterator[Call | Host]:
    yield from step(layout, stage, is_logging, _MODEL)


JOB = JobKind(name="megatron", lay_out=lay_out, build_step=_step, log_every=5)
