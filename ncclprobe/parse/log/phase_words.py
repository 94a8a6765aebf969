"""The words by which a line says what the program does.

In: a line, or the label of a progress bar. Out: a phase, as `analyze.phases.Phase` names it, or "training".

The wording of torch, Transformers, datasets, Accelerate, DeepSpeed, Megatron, Lightning, mmengine, vLLM, SGLang, W&B,
and the forms that people's own programs have in common.
"""

import re

CHECKPOINT = "saving or loading a checkpoint"
PREPROCESSING = "preprocessing"
EVALUATION = "evaluating"
COMPILE = "compiling or importing"
LOGGING = "logging"
DATA = "loading data"
INIT = "setting up communication"
EXIT = "shutting down"
DEBUGGER = "in a debugger"
PROMPT = "waiting for an answer at a terminal"
LOCK = "waiting for a lock"


def any_of(*patterns: str) -> re.Pattern[str]:
    """One pattern for all of these, in any case of letters."""
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
            "cach",
            "scan",
            "resolv",
            "extract",
            "comput",
            "annotation",
            "copy",
            "unpack",
        ),
        any_of(
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
            r"\b(caching|encoding) (the )?(latents|embeddings|text|prompts|dataset|images)\b",
            r"\bscanning\b.{0,80}(\bimages\b|\.\.\.)",
            r"\bresolving data files\b|\bindexing\b.{0,40}\bfiles\b",
            r"\b(extracting|unpacking|untarring)\b.{0,60}\.(tar|zip|gz|zst)\b",
            r"\bcomputing (the |dataset |audio |mean |token ){0,3}(statistics|features|embeddings|checksums|lengths)\b",
            r"\bloading annotations\b|\bcreating index\b",
            r"\b(copying|staging|rsync\w*) (the |raw )?(dataset|data|files)\b",
            r"\bbuilding (the )?(cache|dataset cache|\w+ index)\b|\bpre-?process(ing)?\b",
            r"\bapplying chat template|\bdropping long sequences",
        ),
    ),
    (
        CHECKPOINT,
        (
            "sav",
            "writ",
            "wrote",
            "load",
            "resto",
            "resum",
            "dump",
            "model-",
            "consolidat",
            "ckpt",
            "checkpoint",
            "state dict",
            "state_dict",
            "safetensors",
            "upload",
            "push",
        ),
        any_of(
            rf"\b(sav(e|ed|ing)|writ(e|ing)|wrote|writes|dump(ing|ed)|load(ing|ed)?|restor(e|ed|ing)|resum(e|ed|ing))\b"
            rf"[^|]{{0,60}}\b{_STATE}s?\b",
            r"\b(saving|writing|wrote|uploading) (\w+ ){0,3}(model|shards?)\b|\bmodel-\d+-of-\d+\.",
            r"\bconsolidat(e|ed|ing|ion)\b|\bsave_pretrained\b|\bload weight (begin|end)",
            rf"\b{_STATE} (is |was )?(saved|loaded|written)\b",
            rf"\b(gather|upload|push|convert|merg|export|copy|collect)(ing|s)?\b[^|]{{0,60}}\b{_STATE}s?\b",
            r"^[\w./-]{1,120}\.(safetensors|bin|pt|ckpt|gguf):",
            rf"\b{_STATE}\b.{{0,60}}\babout to be saved\b",
            r"\b(sav|writ|load)(e|ing)\b[^|]{0,60}\S\.(pt|pth|ckpt|safetensors|distcp|nemo)\b",
        ),
    ),
    (
        LOGGING,
        ("wandb", "retr", "mlflow", "comet", "neptune", "tensorboard", "clearml", "trackio", "aim"),
        any_of(
            r"\bwandb: .*(network error|retry|upload|syncing|waiting for|enter your choice|paste an api key)",
            r"\bentering retry loop\b",
            r"\b(mlflow|comet(_ml)?|neptune|tensorboard|clearml)\b.{0,80}(retr|timed? ?out|upload|waiting|synchroni)",
            r"\b(upload|log|push|send|flush)(ing)?\b.{0,60}\bto (mlflow|wandb|comet|neptune|clearml)\b",
            r"host='[\w.]*(wandb|comet|neptune|mlflow)[\w.]*'.{0,200}retr|retr.{0,200}host='[\w.]*(wandb|comet|neptune|mlflow)",
        ),
    ),
    (
        COMPILE,
        ("compil", "dynamo", "graph", "ninja", "extension", "autotun", "ldflags", "nvcc", "tensorrt", "triton", "warm"),
        any_of(
            r"\btorch\.compile\b|\bdynamo\b.{0,40}\b(trac|transform|compil)|\bcompiling (a |the )?\w+",
            r"\b(captur(e|ing)) cuda graph|\bgraph capturing\b|\bcuda graph capture\b",
            r"\bninja\b|\b(building|loading|compiling) extension|\bjit[- ]compil|\bautotun(e|ing)\b",
            r"\bPyTorch extensions root\b|\bpatching ldflags\b|\bnvcc\b|^AUTOTUNE \w+\(|\btriton_\w+ \d",
            r"\bwarm(ing)? ?up (the )?(cuda graphs?|kernels?|compil)",
            r"\b(build|compil)(e|ing)\b.{0,30}\b(tensorrt|engine|kernels?)\b",
            r"\b(start|begin|trigger)\w* (to )?compil(e|ing|ation)\b",
        ),
    ),
    (
        EVALUATION,
        (
            "eval",
            "valid",
            "sanity",
            "predict",
            "test",
            "(val",
            "generat",
            "running",
            ", elapsed: ",
            "comput",
            "calculat",
            "sampl",
            "decod",
            "rollout",
        ),
        any_of(
            r"\beval(uat(e|ing|ion))?\b(?! (throughput|loss))",
            r"\bvalidat(e|ing|ion)\b(?!.{0,20}datasets?)",
            r"\bsanity checking\b|\bpredicting\b|\btesting dataloader|\b(iter|epoch)\((val|test)\)",
            r"\bgenerat(e|ing) (samples?|responses?|completions?|sequences|text|images?|rollouts?)\b",
            r"^generating$|^generating:|^test: ",
            r"\b(sampling|rendering) (\w+ ){0,3}(images?|samples?|videos?|grid|text)\b",
            r"\b(comput|calculat)(e|ing) (the )?(\w+ )?(fid|map|perplexity|bleu|rouge|wer|metrics?|accuracy|f1)\b",
            r"\bdecoding (the )?(dev|test|valid\w*)\b|\brollout (generation|phase)\b|\bgenerating rollouts?\b",
            r"\brunning (generate_until|loglikelihood|generation|inference)",
            r"^\[[> ]*\] \d+/\d+, elapsed: ",
        ),
    ),
    (
        DATA,
        ("wait", "retr", "timed", "timeout", "slow", "loader", "queue"),
        any_of(
            r"\bwaiting (for|on) (the )?(next )?(batch|data|dataloader|data ?loader|prefetch)",
            r"\b(retry(ing)?|timed? ?out|slow)\b.{0,40}\b(read(ing)?|shard|batch|data ?loader|dataset)\b",
            r"\bdata ?loader\b.{0,80}\b(stall|slow|stuck|wait|retry|timed? ?out)|\bwaiting for worker \d+ of the data",
            r"\b(data|batch|prefetch|sample) (queue|buffer) (is )?(empty|starv)|\bslow (read|fetch|io|i/o)\b",
        ),
    ),
    (
        LOCK,
        ("lock",),
        any_of(
            r"\b(waiting|attempting|trying|blocked)\b.{0,40}\b(acquir\w+|on|for|get)\b.{0,40}\b(file ?)?lock\b",
            r"\bwaiting (for|on) (the )?(file ?)?lock|\block\b.{0,60}\b(held by|is held|is taken)\b",
        ),
    ),
    (
        DEBUGGER,
        ("pdb", ".py(", "debugpy"),
        any_of(
            r"^\(i?pdb\+{0,2}\)", r"^ipdb> |\bdebugpy\b.{0,60}\bwait", r"^> \S{1,300}\.py\(\d{1,7}\)[\w<>]{1,100}\(\)"
        ),
    ),
    (
        EXIT,
        ("stop", "loop", "teardown", "tearing", "shut", "clean"),
        any_of(
            r"\bshould_stop=True\b|\bleaving (the )?(fit|training) loop|\b(before|in) teardown\b|\btearing down\b",
            r"\bearly stopping\b.{0,40}\b(triggered|stop)|\bstop(ping)? training\b|\bshutting down\b|\bcleaning up\b",
        ),
    ),
    (
        PROMPT,
        ("y/n", "press ", "yes/no", "enter your", "password:"),
        any_of(
            r"[\[(](y/n|yes/no)[\])][ :?]{0,3}$|\bpress (enter|any key)\b|\bpassword: ?$",
            r"\benter your (choice|api key|token)\b.{0,20}:? ?$",
        ),
    ),
    (
        INIT,
        ("init",),
        any_of(
            r"\binitializing distributed\b|\binit_process_group\b",
            r"\binitializ\w+ (torchbackend|process group|torch distributed)",
            r"\bwaiting for model parallel initiali[sz]ation",
        ),
    ),
)


def phase_in(text: str) -> str | None:
    """The first that the words fit; None for a line that says nothing of the kind."""
    low = text.lower()
    for phase, hints, words in _PHASES:
        if any(hint in low for hint in hints) and words.search(text):
            return phase
    return None
