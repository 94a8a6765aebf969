"""What a thread is doing, told from the functions it is in.

In: a stack, innermost frame first. Out: a `Phase` and the function that gave it away.

Names as in torch 2.13, DeepSpeed 0.19, Megatron-core 0.16, Accelerate 1.15, Lightning 2.6 and datasets 5.2. A C call
that blocks (sleep, lock, device sync, socket) has no Python frame: the line that made it is on top.
"""

import re
from dataclasses import dataclass
from enum import Enum

from ncclprobe.model.frames import Frame, Stack


class Phase(str, Enum):
    """Kinds of places. The first five wait for other ranks, or for the GPU that does."""

    COLLECTIVE = "in a collective"
    P2P = "in a send or recv"
    BACKWARD = "in backward"
    SYNC = "waiting for the GPU"
    INIT = "setting up communication"
    DATA = "loading data"
    CHECKPOINT = "saving or loading a checkpoint"
    PREPROCESSING = "preprocessing"
    EVALUATION = "evaluating"
    LOGGING = "logging"
    COMPILE = "compiling or importing"
    LOCK = "waiting for a lock"
    DEBUGGER = "in a debugger"
    EXIT = "shutting down"
    PYTHON = "in other Python code"

    __str__ = str.__str__

    @property
    def waits_for_ranks(self) -> bool:
        """Whether a thread in this phase can be waiting for what other ranks have to do."""
        return self in _WAITING


_WAITING = frozenset({Phase.COLLECTIVE, Phase.P2P, Phase.BACKWARD, Phase.SYNC, Phase.INIT})


@dataclass(frozen=True, slots=True)
class Place:
    """A phase, and the frame it was told from (None when no frame was known)."""

    phase: Phase
    frame: Frame | None


def _rule(phase: Phase, file: str, function: str = ".*") -> tuple[Phase, re.Pattern[str], re.Pattern[str]]:
    return phase, re.compile(rf"(^|/)({file})$"), re.compile(rf"^({function})$")


_C10D = r"torch/distributed/distributed_c10d\.py"
_DIRECT = (
    _rule(
        Phase.INIT,
        _C10D,
        r"init_process_group|_new_process_group_helper|new_group|new_subgroups.*|split_group|_store_based_barrier",
    ),
    _rule(Phase.EXIT, _C10D, r"destroy_process_group"),
    _rule(Phase.P2P, _C10D, r"send|recv|isend|irecv|batch_isend_irecv"),
    _rule(
        Phase.COLLECTIVE,
        _C10D,
        r"all_reduce|broadcast|all_gather.*|reduce_scatter.*|all_to_all.*|reduce|gather|scatter"
        r"|.*barrier|.*_object.*|_coalescing_manager|wait",
    ),
    _rule(Phase.INIT, r"torch/distributed/(rendezvous|elastic/.*)\.py"),
    _rule(
        Phase.COLLECTIVE, r"torch/distributed/_functional_collectives\.py|torch/distributed/tensor/_redistribute\.py"
    ),
    _rule(
        Phase.COLLECTIVE,
        r"torch/nn/parallel/distributed\.py",
        r"_pre_forward|_sync_.*|_check_and_sync.*|_ddp_init_helper",
    ),
    _rule(Phase.COLLECTIVE, r"torch/distributed/utils\.py", r"_sync_.*|_verify_param_shape_across_processes"),
    _rule(
        Phase.COLLECTIVE,
        r"torch/distributed/fsdp/.*\.py",
        r".*unshard.*|.*forward.*|.*backward.*|.*reduce.*|.*gather.*",
    ),
    _rule(Phase.P2P, r"torch/distributed/pipelining/.*\.py"),
    _rule(Phase.BACKWARD, r"torch/autograd/(graph|__init__)\.py|torch/_tensor\.py", r"_engine_run_backward|backward"),
    _rule(Phase.SYNC, r"torch/cuda/(__init__|streams)\.py", r"synchronize|wait|query"),
    # C frames of py-spy --native: the driver's own waits, in whatever library they were found.
    _rule(Phase.SYNC, r".*", r"cu(da)?(Stream|Device|Event|Ctx)Synchronize|cu(da)?Memcpy\w*|cu(da)?MemFree\w*"),
    _rule(Phase.SYNC, r"torch/nn/utils/clip_grad\.py|torch/amp/grad_scaler\.py"),
    _rule(Phase.COLLECTIVE, r"deepspeed/comm/.*\.py|deepspeed/runtime/zero/.*\.py"),
    _rule(Phase.P2P, r"deepspeed/runtime/pipe/.*\.py|megatron/core/pipeline_parallel/p2p_communication\.py"),
    _rule(Phase.COLLECTIVE, r"megatron/core/(distributed|tensor_parallel|optimizer)/.*\.py"),
    _rule(Phase.COLLECTIVE, r"accelerate/(accelerator|state)\.py|accelerate/utils/operations\.py"),
    _rule(
        Phase.COLLECTIVE,
        r"(lightning/.*|pytorch_lightning)/strategies/.*\.py",
        r"barrier|broadcast|reduce.*|all_gather",
    ),
    _rule(Phase.DEBUGGER, r"(pdb|bdb|cmd|code)\.py|IPython/.*\.py"),
)
_CONTEXT = (
    _rule(Phase.CHECKPOINT, r"torch/serialization\.py|torch/distributed/checkpoint/.*\.py|safetensors/torch\.py"),
    _rule(Phase.DATA, r"torch/utils/data/.*\.py|torchdata/.*\.py|datasets/iterable_dataset\.py|webdataset/.*\.py"),
    _rule(Phase.PREPROCESSING, r"datasets/(arrow_dataset|builder|load)\.py|transformers/tokenization.*\.py"),
    _rule(Phase.LOGGING, r"(wandb|tensorboardX?|mlflow|comet_ml|neptune|torch/utils/tensorboard)/.*\.py"),
    _rule(Phase.COMPILE, r"torch/_(inductor|dynamo)/.*\.py|triton/.*\.py|torch/utils/(cpp_extension|file_baton)\.py"),
    _rule(Phase.EVALUATION, r"transformers/trainer\.py", r"evaluat.*|prediction_.*"),
    _rule(Phase.LOCK, r"(threading|queue|filelock/.*|portalocker/.*|multiprocessing/(synchronize|queues))\.py",
          r"wait|acquire|get|join|__enter__"),
)  # fmt: skip
# What people call their own functions; only used where the frames of libraries say nothing.
_USER_WORDS = (
    (Phase.EVALUATION, re.compile(r"(^|_)(eval|evaluate|evaluation|validate|validation|generate|test)(_|$)")),
    (Phase.CHECKPOINT, re.compile(r"(^|_)(save|checkpoint|ckpt|load_state)(_|$)|^(save|load)_")),
    (Phase.PREPROCESSING, re.compile(r"(^|_)(preprocess\w*|tokeni[sz]e\w*|download\w*|prepare_data|build_index)(_|$)")),
    (Phase.LOGGING, re.compile(r"(^|_)(log|logger|report|track)(_|$)")),
)


def place_of(stack: Stack) -> Place:
    """From the innermost frame outward. User code called from a wait means that the thread is not in that wait."""
    is_inside_user_code = False
    for frame in stack:
        if not is_inside_user_code:
            phase = _match(_DIRECT, frame)
            if phase:
                return Place(phase, frame)
            is_inside_user_code = frame.is_user_code
        phase = _match(_CONTEXT, frame)
        if phase and (phase is not Phase.LOCK or not is_inside_user_code):
            return _within(stack, Place(phase, frame))
    for frame in stack:
        for phase, words in _USER_WORDS if frame.is_user_code else ():
            if words.search(frame.short_function.lower()):
                return Place(phase, frame)
    return Place(Phase.PYTHON, next((f for f in stack if f.is_user_code), stack[0] if stack else None))


def _within(stack: Stack, place: Place) -> Place:
    """A lock taken by a data loader, a checkpoint writer or a tracker is theirs: the outer phase tells more."""
    if place.phase is not Phase.LOCK:
        return place
    outer = (Place(phase, frame) for frame in stack for phase in (_match(_CONTEXT, frame),) if phase)
    return next((found for found in outer if found.phase is not Phase.LOCK), place)


def _match(rules: tuple[tuple[Phase, re.Pattern[str], re.Pattern[str]], ...], frame: Frame) -> Phase | None:
    for phase, file, function in rules:
        if file.search(frame.file) and function.match(frame.short_function):
            return phase
    return None
