"""DistributedDataParallel: buckets of gradients are reduced while backward runs, all in the default group.

In: a number of ranks. Out: `JOB`, the calls of each rank in a step.
"""

from collections.abc import Iterator

from ncclprobe.simulate.calls import Call, Host
from ncclprobe.simulate.job import JobKind
from ncclprobe.simulate.layout import Layout, flat

_BUCKETS = (2_049_000, 7_875_584, 6_563_840, 6_822_400, 9_408)  # elements: ResNet-50, 25 MB each, the last one first
_BUFFERS = 53_120
_GATHERED = 64  # beyond that the log would be longer than the step


def _lay_out(ranks: int, needs: frozenset[str]) -> Layout:
    return flat(ranks)


def _step(layout: Layout, stage: int, is_logging: bool) -> Iterator[Call | Host]:
    buffers = ((_BUFFERS,),)
    yield Call(axis="world", op="broadcast", inputs=buffers, outputs=buffers, site="ddp.buffers", root=0)
    for numel in _BUCKETS:
        yield _all_reduce(numel, "ddp.bucket", is_async=True, is_on_autograd=True)
    yield Host.WAIT_ASYNC
    yield _all_reduce(1, "loss")
    yield Host.SYNC
    if is_logging:
        yield from log(layout.world_size, "world")


def _all_reduce(numel: int, site: str, *, is_async: bool = False, is_on_autograd: bool = False) -> Call:
    sizes = ((numel,),)
    return Call(
        axis="world",
        op="all_reduce",
        inputs=sizes,
        outputs=sizes,
        site=site,
        is_async=is_async,
        is_on_autograd=is_on_autograd,
    )


def log(members: int, axis: str) -> Iterator[Call | Host]:
    """What every rank does each few steps: gather its metrics, and meet at the checkpoint."""
    yield Call(axis=axis, op="_all_gather_base", inputs=((4,),), outputs=((4 * members,),), site="metrics")
    if members <= _GATHERED:
        gathered = ((16,),) * members
        yield Call(axis=axis, op="gather", inputs=((16,),), outputs=gathered, site="metrics.gather", root=0)
    yield Call(axis=axis, op="all_reduce_barrier", inputs=((1,),), outputs=((1,),), site="checkpoint")
    yield Host.SYNC


JOB = JobKind(name="ddp", lay_out=_lay_out, build_step=_step, log_every=10)
