"""A training step of Megatron: a model's layers in a pipeline, then gradients, norms and parameters.

In: a `Model` and a layout. Out: the calls of one step of a stage. Sizes, groups and the order of calls follow the
public dumps of a real Megatron job (test data of NVIDIA's nvidia-resiliency-ext).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ncclprobe.model.collectives import Sizes
from ncclprobe.simulate.calls import Call, Host, Part
from ncclprobe.simulate.layout import Layout, megatron
from ncclprobe.simulate.pipeline import Forward, Message, one_forward_one_backward

TOKENS, HIDDEN = 8192, 5120
_GRADS = (167_772_160, 83_886_080)  # elements of a stage's two gradient buffers
_TIMEOUT_MS = 180_000

Pass = Callable[[Layout], Iterator[Call]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """The calls of one microbatch in a stage. `is_batched`: sends and recvs go out in batches, then the host waits."""

    forward: Pass
    backward: Pass
    is_batched: bool


def lay_out(ranks: int, needs: frozenset[str]) -> Layout:
    """Degrees as people choose them; where ranks are few, what the scenario `needs` (`tp`, `pp`) comes first."""
    pp = _divisor(ranks, 8 if ranks >= 1024 else 4 if ranks >= 64 else 2 if ranks >= 8 or "pp" in needs else 1)
    rest = ranks // pp
    tp = _divisor(rest, 8 if ranks >= 1024 else 4 if ranks >= 32 else 2 if "tp" in needs or rest >= 4 else 1)
    return megatron(ranks, tp, pp, ep=_divisor(rest, 8))


def _divisor(number: int, wanted: int) -> int:
    """The largest power of two up to `wanted` that divides the number."""
    while number % wanted:
        wanted //= 2
    return wanted


def step(layout: Layout, stage: int, is_logging: bool, model: Model) -> Iterator[Call | Host]:
    """The microbatches, then what Megatron's `finalize_model_grads` and its optimizer do."""
    stages = layout.degrees["pp"]
    is_last = stage == stages - 1
    for action in one_forward_one_backward(stage, stages, max(2, stages)):
        if isinstance(action, tuple):
            yield from _exchange(action, stage, stages, model.is_batched)
        elif isinstance(action, Forward):
            if stage == 0 or is_last:
                yield collective("tp", "broadcast", ((1, TOKENS),), ((1, TOKENS),), "Long", "tp.data", root=0)
            yield from model.forward(layout)
            yield from _loss(layout) if is_last else ()
        else:
            yield from model.backward(layout)
    yield from _finish(layout, stage in (0, stages - 1) and stages > 1)
    if is_logging:
        yield all_reduce("world", 4, "metrics.rank")
        yield Host.SYNC


def _loss(layout: Layout) -> Iterator[Call]:
    """The cross-entropy over a vocabulary that is split: maximum, target and sum."""
    for _ in range(3):
        yield collective("tp", "all_reduce", ((TOKENS, 1),), ((TOKENS, 1),), "Float", "tp.loss")


def _finish(layout: Layout, has_embedding: bool) -> Iterator[Call | Host]:
    replicas = layout.size("dp")
    for numel in _GRADS:
        whole, share = ((numel,),), ((numel // replicas,),)
        yield collective("dp", "_reduce_scatter_base", whole, share, "Float", "dp.grads", is_async=True)
    yield Host.WAIT_ASYNC
    yield all_reduce("tp", HIDDEN * 8, "tp.layernorm")
    if has_embedding:
        table = ((51_200, HIDDEN),)
        yield collective("emb", "all_reduce", table, table, "BFloat16", "emb.grads")
    yield all_reduce("mp", 1, "grad_norm")
    yield Host.SYNC
    for numel in _GRADS:
        share, whole = ((numel // replicas,),), ((numel // replicas * replicas,),)
        yield collective("dp", "_all_gather_base", share, whole, "BFloat16", "dp.params")
    yield all_reduce("dp", 2, "loss")
    yield Host.SYNC


def _exchange(messages: tuple[Message, ...], stage: int, stages: int, is_batched: bool) -> Iterator[Call | Host]:
    """Batched: one call, and a device synchronisation that Megatron adds. Else one by one; even stages send first."""
    if is_batched:
        yield _p2p("pp", "coalesced", messages, "pp.batched", is_batch=True)
        yield Host.SYNC
        return
    for message in sorted(messages, key=lambda message: message.is_send is not (stage % 2 == 0)):
        sender = stage if message.is_send else message.stage
        # With two stages Megatron sends from odd to even ones in the default group, to have two communicators.
        axis = "world" if stages == 2 and sender == 1 else "pp"
        yield _p2p(axis, "send" if message.is_send else "recv", (message,), "pp.p2p")


def _p2p(axis: str, op: str, messages: tuple[Message, ...], site: str, *, is_batch: bool = False) -> Call:
    sizes = ((TOKENS // 4, 1, HIDDEN),)
    parts = tuple(Part(message.is_send, message.stage, sizes, "BFloat16") for message in messages)
    return Call(axis=axis, op=op, site=site, parts=parts, is_batch=is_batch, timeout_ms=_TIMEOUT_MS)


def tp_gather(layout: Layout, site: str, *, is_on_autograd: bool = False) -> Call:
    """Sequence parallelism: the activations of all ranks of the group."""
    whole, share = _activations(layout)
    return collective("tp", "_all_gather_base", share, whole, "BFloat16", site, is_on_autograd=is_on_autograd)


def tp_scatter(layout: Layout, site: str, *, is_on_autograd: bool = False) -> Call:
    """Sequence parallelism: back to this rank's share."""
    whole, share = _activations(layout)
    return collective("tp", "_reduce_scatter_base", whole, share, "BFloat16", site, is_on_autograd=is_on_autograd)


def _activations(layout: Layout) -> tuple[Sizes, Sizes]:
    return ((TOKENS, 1, HIDDEN),), ((TOKENS // layout.size("tp"), 1, HIDDEN),)


def all_reduce(axis: str, numel: int, site: str, dtype: str = "Float") -> Call:
    """A sum over one flat tensor."""
    return collective(axis, "all_reduce", ((numel,),), ((numel,),), dtype, site)


def collective(
    axis: str,
    op: str,
    inputs: Sizes,
    outputs: Sizes,
    dtype: str,
    site: str,
    *,
    root: int | None = None,
    is_async: bool = False,
    is_uneven: bool = False,
    is_on_autograd: bool = False,
) -> Call:
    """A call with Megatron's timeout."""
    return Call(
        axis=axis,
        op=op,
        inputs=inputs,
        outputs=outputs,
        dtype=dtype,
        site=site,
        root=root,
        is_async=is_async,
        is_uneven=is_uneven,
        is_on_autograd=is_on_autograd,
        timeout_ms=_TIMEOUT_MS,
    )
