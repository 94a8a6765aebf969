"""What a line of a program says that it is doing.

In: the text of a line. Out: `Doing`: a phase as `analyze.phases.Phase` names it, or "training", and how far it is.

The wording of torch, Transformers, datasets, Accelerate, DeepSpeed, Megatron, Lightning, mmengine, vLLM, SGLang, W&B,
and the forms that people's own programs have in common. A line that says that the work is done has progress `(1, 1)`.
"""

import re
from dataclasses import dataclass

from ncclprobe.model.log import TRAINING
from ncclprobe.parse.log.phase_words import INIT, any_of, phase_in

_MAX_LINE = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """`label` is equal for lines of one piece of work; `total` of `progress` is 0 where only a count is printed."""

    phase: str
    label: str
    progress: tuple[int, int] | None = None
    is_done: bool = False


_STEP = re.compile(
    r"\b(?:global_)?(?:step|iter(?:ation)?)(?:/max_steps|\(train\))?'?\s{0,3}[:=#]?\s{0,12}['\[]?\s{0,12}"
    r"(\d{1,10})\b(?:\s{0,3}/\s{0,10}(\d{1,10})\b)?",
    re.IGNORECASE,
)
_SERVING = re.compile(r"\b(?:Decode|Prefill) batch\b")
_EPOCH = re.compile(
    r"\bepoch\b:? ?\[\d{1,7}\] ?\[ *\d{1,10}/\d{1,10}\]|\bit[ :=]{1,2}\d{1,10}\b.{0,80}\bloss"
    r"|^\[ *\d{1,10}/\d{1,10}\].{0,80}\bloss\b"
    r"|\b(?:batch|epoch)\b[ :]{1,3}(\d{1,10})\b.{0,80}\bloss|^\{'loss': |\d+batch \[\d",
    re.IGNORECASE,
)
_BAR = re.compile(
    r"^(?P<label>.{0,160}?):? *\d{1,3}%\|[^|]{0,200}\| *"
    r"(?P<done>[\d,.]{1,15}[kMG]?)/(?P<total>[\d,.]{1,15}[kMG]?) \["
)
_COUNT_BAR = re.compile(r"^(?P<label>[^|]{1,160}?): (?P<done>\d{1,12}) ?\w{0,20} \[\d\d:\d\d")
_MMCV_BAR = re.compile(r"^\[[> ]*\] (\d{1,10})/(\d{1,10}), elapsed: ")
_OF = re.compile(r"(?<![\d/.])\b(\d{1,10})/(\d{1,10})\b(?![/.]| \d\d:)")  # and no date
_DONE = any_of(
    r"\b(done|finished|completed?|succe(ss|eded)|successfully)\b",
    r"\b(saved|loaded)\b(?!.{0,3}:)(?!.{0,20}\d+/\d+)",
    r"\b(capture|weight) .{0,20}\bend\b",
)
# Files that are written first: the optimizer's states follow, without a word.
_PART = re.compile(
    r"\b(config\w*|tokenizer|special tokens|weights|vocab\w*|processor|template)\b.{0,30} saved in\b", re.I
)
# Not what a program does now: settings, tries that found nothing, torch's and NCCL's own lines, code of a traceback.
_FOREIGN = ("NCCL INFO", "NCCL WARN", "ProcessGroup", "TCPStore", "socket.cpp", "none found", "ould load",
            "will be saved", "store based barrier", "store-based barrier", "srun: ", "slurmstepd: ", " --", "frame #",
            "shared memory broadcast", "death signal", "ds_accelerator", "environment variable")  # fmt: skip
_NEVER = re.compile(r"\s*File \"| {4}[a-z]|[\w.]{1,80}(?:Error|Exception): |\$ ")
# Cheap words: a line without any of them, or a digit, cannot be one of the above.
_HINTS = ("ing", "ave", "rote", "oad", "ap", "il", "tep", "ter", "poch", "val", "ninja", "batch", "%|", "loss",
          "onsolidat", "model-", "orch.compile", "raph", "init_", "arly", "shar", "elapsed", "db", "lock", "nvcc",
          "queue", "tens", "est: ", "TUNE", "slow", "etr", "omput", "alculat", "it ", "oss", "ollout",
          "y/", "ress ", "yes/", "nter your", "assword")  # fmt: skip


def doing(text: str) -> Doing | None:
    """None for a line that says nothing of the kind."""
    text = text[:_MAX_LINE]
    if not any(hint in text for hint in _HINTS) or any(words in text for words in _FOREIGN) or _NEVER.match(text):
        return None
    bar = _BAR.match(text) if "%|" in text else None
    if bar:
        label = bar["label"].strip()
        progress = _whole(bar["done"]), _whole(bar["total"])
        return Doing(phase=phase_in(f"{label}:") or TRAINING, label=label, progress=progress)
    counted = _COUNT_BAR.match(text)
    phase = phase_in(text)
    if phase is None:
        return _training(text)
    if counted:
        return Doing(phase=phase, label=counted["label"], progress=(int(counted["done"]), 0))
    ratio = _MMCV_BAR.match(text) or _OF.search(text)
    is_part = ratio is not None and phase is not INIT and 0 < int(ratio[2]) >= int(ratio[1])
    progress_ = (int(ratio[1]), int(ratio[2])) if ratio is not None and is_part else None
    is_done = progress_ is None and _DONE.search(text) is not None and not _PART.search(text)
    return Doing(phase=phase, label=phase, progress=(1, 1) if is_done else progress_, is_done=is_done)


def step_of(text: str) -> int | None:
    """The number of the training step that a line speaks of."""
    step = _STEP.search(text[:_MAX_LINE])
    return int(step[1]) if step else None


def _training(text: str) -> Doing | None:
    step = _STEP.search(text) if "tep" in text or "ter" in text or "TER" in text or "STEP" in text else None
    if step:
        total = int(step[2]) if step[2] else 0
        return Doing(phase=TRAINING, label=TRAINING, progress=(int(step[1]), total) if total else None)
    is_epoch = ("loss" in text or "Loss" in text or "batch [" in text or "poch" in text) and _EPOCH.search(text)
    if is_epoch or _SERVING.search(text):
        return Doing(phase=TRAINING, label=TRAINING)
    return None


def _whole(text: str) -> int:
    """`2143311`, `6,026`, `1.5M` of tqdm."""
    factor = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    number = text.rstrip("kMG").replace(",", "")
    return int(float(number) * factor) if re.fullmatch(r"\d+(\.\d*)?", number) else 0
