"""What a thread is doing, told from the functions it is in.

In: a stack, innermost frame first. Out: a `Phase` and the function that gave it away.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ncclprobe.analyze.signature import Phase, Rule, Strength
from ncclprobe.analyze.wait_signatures import LEAVES, NATIVE_WAITS, WAITS
from ncclprobe.analyze.work_signatures import GENERICS, NATIVE_GENERICS, WORKS
from ncclprobe.model.frames import Frame, Stack, innermost_user_frame

__all__ = ["Phase", "Place", "place_of"]

_TABLE: dict[tuple[Strength, bool], tuple[Rule, ...]] = {
    (Strength.WAIT, False): WAITS,
    (Strength.WAIT, True): NATIVE_WAITS,
    (Strength.LEAF, False): LEAVES,
    (Strength.WORK, False): WORKS,
    (Strength.GENERIC, False): GENERICS,
    (Strength.GENERIC, True): NATIVE_GENERICS,
}
# Frameworks that people run from a checkout: there too their names mean what they mean when installed.
_CHECKOUTS = re.compile(
    r"(?:^|/)(?:torch|torchtitan|megatron|deepspeed|accelerate|transformers|vllm|sglang|trl|verl|openrlhf|nemo|mmengine"
    r"|composer|colossalai|flashinfer|triton|pytorch_lightning|lightning|transformer_engine|datasets)/"
)
_TOLD_BY_OUTER = (Phase.SYNC, Phase.CHECKPOINT)
# Ways of waiting for which a user's own function may say what for.
_UNSAID = (Phase.NETWORK, Phase.CHILD, Phase.STORAGE)
# What people call their own functions; only used where the frames of libraries say nothing.
_USER_WORDS = (
    (Phase.EVALUATION, re.compile(r"(^|_)(eval|evaluate|evaluation|validate|validation|generate|rollout|test)(_|$)")),
    (Phase.CHECKPOINT, re.compile(r"(^|_)(save|checkpoint|ckpt|load_state)(_|$)|^(save|load)_")),
    (Phase.PREPROCESSING, re.compile(r"(^|_)(preprocess\w*|tokeni[sz]e\w*|download\w*|prepare_data|build_index)(_|$)")),
    (Phase.LOGGING, re.compile(r"(^|_)(log|logger|report|track)(_|$)")),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A phase, and the frame it was told from (None when no frame was known)."""

    phase: Phase
    frame: Frame | None


@lru_cache(maxsize=1 << 16)
def place_of(stack: Stack) -> Place:
    """From the innermost frame outward. User code called from a wait means that the thread is not in that wait.

    A wait for the GPU inside a function that does a collective is that collective's, and a lock taken by a data loader,
    a checkpoint writer or a tracker is theirs: there the outer function tells more. `torch.load` may load a checkpoint,
    or a shard of the data.
    """
    inner: Place | None = None
    for place, strength in _places(stack):
        is_telling = strength is not Strength.GENERIC
        if is_telling and (inner is None or _tells_more(place.phase, inner.phase)):
            if place.phase not in _TOLD_BY_OUTER:
                return place
            inner = place
        elif inner is None or (not is_telling and _is_vaguer(inner.phase, place.phase)):
            inner = place
    if inner and inner.phase not in _UNSAID:
        return _elsewhere(stack) if _is_interpreters_own(inner, stack) else inner
    return _by_words(stack) or inner or _elsewhere(stack)


def _is_interpreters_own(place: Place, stack: Stack) -> bool:
    """Whether all that is known is that Python waits for a lock: every queue, thread and future does."""
    name = place.frame.function if place.frame else ""
    return name.startswith(("PyThread_", "acquire_timed")) and all(frame.is_native for frame in stack)


def _tells_more(outer: Phase, inner: Phase) -> bool:
    if inner is Phase.CHECKPOINT:
        return outer in (Phase.DATA, Phase.PREPROCESSING)
    if inner is Phase.SYNC:
        return outer in (Phase.COLLECTIVE, Phase.P2P)
    return outer not in (Phase.BACKWARD, Phase.SYNC)


def _is_vaguer(inner: Phase, outer: Phase) -> bool:
    """Everything waits with locks in the end; a network's answer may be data."""
    return (inner is Phase.LOCK and outer is not Phase.LOCK) or (
        inner in _UNSAID and outer not in (Phase.LOCK, *_UNSAID)
    )


def _places(stack: Stack) -> Iterator[tuple[Place, Strength]]:
    """What each frame says, innermost first; from the first user code on only what the work is."""
    is_in_user_code, is_leaf = False, True
    for frame in stack:
        for strength in (Strength.WORK,) if is_in_user_code else Strength:
            phase = _phase_of(frame, strength) if is_leaf or strength is not Strength.LEAF else None
            if phase:
                yield Place(phase, frame), strength
                break
        is_in_user_code = is_in_user_code or frame.is_user_code
        is_leaf = is_leaf and frame.is_native


def _phase_of(frame: Frame, strength: Strength) -> Phase | None:
    if frame.short_function == "<module>":  # a package that is being imported does nothing that it is for
        return None
    name = frame.function if frame.is_native else frame.short_function
    return _look_up(strength, frame.is_native, frame.file, name)


@lru_cache(maxsize=1 << 17)
def _look_up(strength: Strength, is_native: bool, file: str, function: str) -> Phase | None:
    if Frame(function, file).is_user_code and not _CHECKOUTS.search(file):
        return None
    rules = _TABLE.get((strength, is_native), ())
    return next((rule.phase for rule in rules if rule.file.search(file) and rule.function.match(function)), None)


def _by_words(stack: Stack) -> Place | None:
    for frame in stack:
        for phase, words in _USER_WORDS if frame.is_user_code else ():
            if words.search(frame.short_function.lower()):
                return Place(phase, frame)
    return None


def _elsewhere(stack: Stack) -> Place:
    """Python code of no kind; where only native frames are known they may be anywhere below a library's call."""
    python = [frame for frame in stack if not frame.is_native]
    if not python:
        return Place(Phase.UNKNOWN, stack[0] if stack else None)
    return Place(Phase.PYTHON, innermost_user_frame(stack) or python[0])
