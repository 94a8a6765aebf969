"""FSDP2 of a small transformer: parameters gathered layer by layer, gradients scattered; hybrid from 16 ranks on.

In: a number of ranks. Out: `JOB`, the calls of each rank in a step.
"""

from collections.abc import Iterator

from ncclprobe.simulate.calls import Call, Host
from ncclprobe.simulate.job import JobKind
from ncclprobe.simulate.jobs.ddp import log
from ncclprobe.simulate.layout import Layout, sharded

_BLOCKS = 4
_BLOCK_NUMEL = 218_112_000  # one layer of a 7B model
_EMBEDDING_NUMEL = 262_144_000
_HYBRID_RANKS = 16


def _lay_out(ranks: int, needs: frozenset[str]) -> Layout:
    is_hybrid = ranks >= _HYBRID_RANKS and ranks % 8 == 0
    return sharded(ranks, ranks // 8 if is_hybrid else 1)


def _step(layout: Layout, stage: int, is_logging: bool) -> Iterator[Call | Host]:
    shards, is_hybrid = layout.size("shard"), "replicate" in layout.axes
    forward = [_EMBEDDING_NUMEL, *[_BLOCK_NUMEL] * _BLOCKS]
    for numel in forward:
        yield _gather(numel, shards, "fsdp.unshard", is_on_autograd=False)
    for numel in reversed(forward):
        yield _gather(numel, shards, "fsdp.unshard_backward", is_on_autograd=True)
        yield _scatter(numel, shards)
        if is_hybrid:
            yield _replicate(numel // shards)
    yield Host.WAIT_ASYNC
    yield _all_reduce("world", 1, "grad_norm")
    yield _all_reduce("metrics", 2, "loss")
    yield Host.SYNC
    if is_logging:
        yield from log(layout.world_size, "metrics")


def _gather(numel: int, shards: int, site: str, *, is_on_autograd: bool) -> Call:
    shard = -(-numel // shards)
    return Call(
        axis="shard",
        op="_all_gather_base",
        inputs=((shard,),),
        outputs=((shard * shards,),),
        dtype="BFloat16",
        site=site,
        is_on_autograd=is_on_autograd,
    )


def _scatter(numel: int, shards: int) -> Call:
    shard = -(-numel // shards)
    return Call(
        axis="shard",
        op="_reduce_scatter_base",
        inputs=((shard * shards,),),
        outputs=((shard,),),
        site="fsdp.reduce",
        is_async=True,
        is_on_autograd=True,
    )


def _replicate(numel: int) -> Call:
    sizes = ((numel,),)
    return Call(
        axis="replicate",
        op="all_reduce",
        inputs=sizes,
        outputs=sizes,
        site="fsdp.replicate",
        is_async=True,
        is_on_autograd=True,
    )


def _all_reduce(axis: str, numel: int, site: str) -> Call:
    sizes = ((numel,),)
    return Call(axis=axis, op="all_reduce", inputs=sizes, outputs=sizes, site=site)


JOB = JobKind(name="fsdp", lay_out=_lay_out, build_step=_step, log_every=10)
