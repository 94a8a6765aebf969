"""What a line of a program says that it is doing.

In: the text of a line. Out: `Doing`: a phase as `analyze.phases.Phase` names it, or "training", and how far it is.

The wording of torch, Transformers, datasets, Accelerate, DeepSpeed, Megatron, Lightning, mmengine, vLLM, SGLang, W&B,
and the forms that people's own programs have in common. A line that says that the work is done has progress `(1, 1)`.
"""

import re
from dataclasses import dataclass

CHECKPOINT = "saving or loading a checkpoint"
PREPROCESSING = "preprocessing"
EVALUATION = "evaluating"
COMPILE = "compiling or importing"
LOGGING = "logging"
DATA = "loading data"
INIT = "setting up communication"
EXIT = "shutting down"
TRAINING = "training"

_MAX_LINE = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Doing:
    """`label` is equal for lines of one piece of work; `total` of `progress` is 0 where only a count is printed."""

    phase: str
    label: str
    progress: tuple[int, int] | None = None
    is_done: bool = False


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_STATE = r"(?:checkpoint|ckpt|state[ _]?dict|state tensors|safetensors|optimizer states?|model[ _]weights|weights)"
# Phase, parts of words of which the line has one, patterns. The first that matches counts: "Saving the dataset" is no
# checkpoint, "Generating train split" no evaluation.
_PHASES: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    (
        PREPROCESSING,
        (
            "token",
            "map",
            "filter",
            "split",
            "ownload",
            "fetch",
            "group",
            "pack",
            "dataset",
            "arrow",
            "index",
            "corpus",
            "vocab",
            "process",
            "template",
            "sequences",
        ),
        _any(
            r"\btokeni[sz]ing\b",
            r"\brunning tokenizer\b",
            r"\b(map|filter|flatmap)( \(num_proc=\d+\))?:",
            r"\bgenerating \w+ split",
            r"\bdownloading\b|\bfetching \d+ files",
            r"\b(grouping|packing) (texts?|samples|sequences|examples|dataset)",
            r"\bsaving the dataset\b|\bflattening the indices|\bcreating \w+ from arrow",
            r"\b(building|creating|loading|preparing|processing|extracting|converting) (the |raw |[\w, ]{0,40})?"
            r"(index|dataset|datasets|corpus|vocab\w*)\b",
            r"\bunable to find prepared dataset|\bfinished creating .{0,20}datasets",
            r"\bpre-?process(ing)?\b|\bapplying chat template|\bdropping long sequences",
        ),
    ),
    (
        CHECKPOINT,
        ("sav", "writ", "wrote", "load", "resto", "resum", "dump", "model-", "consolidat", "ckpt", "checkpoint"),
        _any(
            rf"\b(sav(e|ed|ing)|writ(e|ing)|wrote|writes|dump(ing|ed)|load(ing|ed)?|restor(e|ed|ing)|resum(e|ed|ing))\b"
            rf"[^|]{{0,60}}\b{_STATE}s?\b",
            r"\b(saving|writing|wrote|uploading) (\w+ ){0,3}(model|shards?)\b|\bmodel-\d+-of-\d+\.",
            r"\bconsolidat(e|ed|ing|ion)\b|\bsave_pretrained\b|\bload weight (begin|end)",
            rf"\b{_STATE} (is |was )?(saved|loaded|written)\b",
        ),
    ),
    (
        LOGGING,
        ("wandb", "retr", "mlflow", "comet", "neptune", "tensorboard", "clearml"),
        _any(
            r"\bwandb: .*(network error|retry|uploading|syncing|waiting for)",
            r"\bentering retry loop\b",
            r"\b(mlflow|comet_ml|comet|neptune|tensorboard|clearml)\b.{0,80}(retry|timed? ?out|upload)",
            r"host='[\w.]*(wandb|comet|neptune|mlflow)[\w.]*'.{0,200}retr",
        ),
    ),
    (
        COMPILE,
        ("compil", "dynamo", "graph", "ninja", "extension", "autotun", "ldflags"),
        _any(
            r"\btorch\.compile\b|\bdynamo\b.{0,40}\b(trac|transform|compil)|\bcompiling (a |the )?\w+",
            r"\b(captur(e|ing)) cuda graph|\bgraph capturing\b|\bcuda graph capture\b",
            r"\bninja\b|\b(building|loading|compiling) extension|\bjit[- ]compil|\bautotun(e|ing)\b",
            r"\bPyTorch extensions root\b|\bpatching ldflags\b",
        ),
    ),
    (
        EVALUATION,
        ("eval", "valid", "sanity", "predict", "testing", "(val", "(test", "generat", "running", ", elapsed: "),
        _any(
            r"\beval(uat(e|ing|ion))?\b(?! (throughput|loss))",
            r"\bvalidat(e|ing|ion)\b(?!.{0,20}datasets?)",
            r"\bsanity checking\b|\bpredicting\b|\btesting dataloader|\b(iter|epoch)\((val|test)\)",
            r"\bgenerat(e|ing) (samples?|responses?|completions?|sequences|text|images?|rollouts?)\b",
            r"\brunning (generate_until|loglikelihood|generation|inference)",
            r"^\[[> ]*\] \d+/\d+, elapsed: ",
        ),
    ),
    (
        DATA,
        ("wait", "retr", "timed", "timeout", "slow", "loader"),
        _any(
            r"\bwaiting (for|on) (the )?(next )?(batch|data|dataloader|data ?loader|prefetch)",
            r"\b(retry(ing)?|timed? ?out|slow)\b.{0,40}\b(read(ing)?|shard|batch|data ?loader|dataset)\b",
            r"\bdata ?loader\b.{0,40}\b(stall|slow|stuck|wait|retry)",
        ),
    ),
    (
        EXIT,
        ("stop", "loop", "teardown", "tearing", "shut", "clean"),
        _any(
            r"\bshould_stop=True\b|\bleaving (the )?(fit|training) loop|\b(before|in) teardown\b|\btearing down\b",
            r"\bearly stopping\b.{0,40}\b(triggered|stop)|\bstop(ping)? training\b|\bshutting down\b|\bcleaning up\b",
        ),
    ),
    (
        INIT,
        ("init",),
        _any(
            r"\binitializing distributed\b|\binit_process_group\b",
            r"\binitializ\w+ (torchbackend|process group|torch distributed)",
            r"\bwaiting for model parallel initiali[sz]ation",
        ),
    ),
)
_STEP = re.compile(
    r"\b(?:global_)?(?:step|iter(?:ation)?)(?:/max_steps|\(train\))?'?\s{0,3}[:=#]?\s{0,12}['\[]?\s{0,12}"
    r"(\d{1,10})\b(?:\s{0,3}/\s{0,10}(\d{1,10})\b)?",
    re.IGNORECASE,
)
_SERVING = re.compile(r"\b(?:Decode|Prefill) batch\b")
_EPOCH = re.compile(r"\b(?:batch|epoch)\b[ :]{1,3}(\d{1,10})\b.{0,80}\bloss|^\{'loss': |\d+batch \[\d", re.IGNORECASE)
_BAR = re.compile(
    r"^(?P<label>.{0,160}?):? *\d{1,3}%\|[^|]{0,200}\| *"
    r"(?P<done>[\d,.]{1,15}[kMG]?)/(?P<total>[\d,.]{1,15}[kMG]?) \["
)
_COUNT_BAR = re.compile(r"^(?P<label>[^|]{1,160}?): (?P<done>\d{1,12}) ?\w{0,20} \[\d\d:\d\d")
_MMCV_BAR = re.compile(r"^\[[> ]*\] (\d{1,10})/(\d{1,10}), elapsed: ")
_OF = re.compile(r"(?<![\d/.])\b(\d{1,10})/(\d{1,10})\b(?![/.]| \d\d:)")  # and no date
_DONE = _any(
    r"\b(done|finished|completed?|succe(ss|eded)|successfully)\b",
    r"\b(saved|loaded)\b(?!.{0,3}:)(?!.{0,20}\d+/\d+)",
    r"\b(capture|weight) .{0,20}\bend\b",
)
# Not what a program does now: settings, tries that found nothing, torch's and NCCL's own lines, code of a traceback.
_FOREIGN = ("NCCL INFO", "NCCL WARN", "ProcessGroup", "TCPStore", "socket.cpp", "none found", "ould load",
            "will be saved", "store based barrier", "store-based barrier", "srun: ", "slurmstepd: ", " --", "frame #",
            "shared memory broadcast", "ds_accelerator", "environment variable")  # fmt: skip
_NEVER = re.compile(r"\s*File \"| {4}[a-z]|[\w.]{1,80}(?:Error|Exception): |\$ ")
# Cheap words: a line without any of them, or a digit, cannot be one of the above.
_HINTS = ("ing", "ave", "rote", "oad", "ap", "il", "tep", "ter", "poch", "val", "ninja", "batch", "%|", "loss",
          "onsolidat", "model-", "orch.compile", "raph", "init_", "arly", "shar", "elapsed")  # fmt: skip


def doing(text: str) -> Doing | None:
    """None for a line that says nothing of the kind."""
    text = text[:_MAX_LINE]
    if not any(hint in text for hint in _HINTS) or any(words in text for words in _FOREIGN) or _NEVER.match(text):
        return None
    bar = _BAR.match(text) if "%|" in text else None
    if bar:
        label = bar["label"].strip()
        progress = _whole(bar["done"]), _whole(bar["total"])
        return Doing(phase=_phase(f"{label}:") or TRAINING, label=label, progress=progress)
    counted = _COUNT_BAR.match(text)
    phase = _phase(text)
    if phase is None:
        return _training(text)
    if counted:
        return Doing(phase=phase, label=counted["label"], progress=(int(counted["done"]), 0))
    ratio = _MMCV_BAR.match(text) or _OF.search(text)
    is_part = ratio is not None and phase is not INIT and 0 < int(ratio[2]) >= int(ratio[1])
    progress_ = (int(ratio[1]), int(ratio[2])) if ratio is not None and is_part else None
    is_done = progress_ is None and _DONE.search(text) is not None
    return Doing(phase=phase, label=phase, progress=(1, 1) if is_done else progress_, is_done=is_done)


def _phase(text: str) -> str | None:
    low = text.lower()
    for phase, hints, words in _PHASES:
        if any(hint in low for hint in hints) and words.search(text):
            return phase
    return None


def _training(text: str) -> Doing | None:
    step = _STEP.search(text) if "tep" in text or "ter" in text or "TER" in text or "STEP" in text else None
    if step:
        total = int(step[2]) if step[2] else 0
        return Doing(phase=TRAINING, label=TRAINING, progress=(int(step[1]), total) if total else None)
    is_epoch = ("loss" in text or "batch [" in text) and _EPOCH.search(text)
    if is_epoch or _SERVING.search(text):
        return Doing(phase=TRAINING, label=TRAINING)
    return None


def _whole(text: str) -> int:
    """`2143311`, `6,026`, `1.5M` of tqdm."""
    factor = {"k": 1_000, "M": 1_000_000, "G": 1_000_000_000}.get(text[-1:], 1)
    number = text.rstrip("kMG").replace(",", "")
    return int(float(number) * factor) if re.fullmatch(r"\d+(\.\d*)?", number) else 0
