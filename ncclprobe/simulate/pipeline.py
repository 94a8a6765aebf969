"""The 1F1B schedule of Megatron's pipeline: which stage runs and sends what, and when.

In: a stage, the number of stages and of microbatches. Out: actions in order; the sends and recvs of one are one batch.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Message:
    """Activations to or from the next stage, or their gradients to or from the one before."""

    is_send: bool
    stage: int


@dataclass(frozen=True, slots=True)
class Forward:
    """The forward pass of one microbatch."""


@dataclass(frozen=True, slots=True)
class Backward:
    """The backward pass of one microbatch."""


Action = Forward | Backward | tuple[Message, ...]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> Iterator[Action]:
    """Warm-up, the steady state, cool-down. Messages over the ends of the pipeline are left out."""
    warm_up = min(stages - stage - 1, microbatches)
    steady = microbatches - warm_up
    for action in _schedule(stage, warm_up, steady):
        if not isinstance(action, tuple):
            yield action
            continue
        inside = tuple(message for message in action if 0 <= message.stage < stages)
        if inside:
            yield inside


def _schedule(stage: int, warm_up: int, steady: int) -> Iterator[Action]:
    send_next, receive_next = Message(True, stage + 1), Message(False, stage + 1)
    send_back, receive_back = Message(True, stage - 1), Message(False, stage - 1)
    for _ in range(warm_up):
        yield from ((receive_back,), Forward(), (send_next,))
    if steady:
        yield (receive_back,)
    for number in range(steady):
        yield from (Forward(), (send_next, receive_next), Backward())
        yield (send_back,) if number == steady - 1 else (send_back, receive_back)
    for _ in range(warm_up):
        yield from ((receive_next,), Backward(), (send_back,))
