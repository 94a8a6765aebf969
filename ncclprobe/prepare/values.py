"""Reading settings as torch reads them.

In: `RankSettings`. Out: the value that counts, under whichever name; None when none is set, or not as a number.
"""

import re

from ncclprobe.model.checkup import RankSettings, Version

BUFFER = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
PIPE = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE"
DUMP = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
DEFAULT_TIMEOUT_S = 600  # kProcessGroupNCCLDefaultTimeout, all of torch 2.2 to 2.15
_TRUE, _FALSE = ("y", "yes", "1", "t", "true"), ("n", "no", "0", "f", "false")  # c10d Utils.hpp, getCvarBool
_MINUTES = re.compile(r"--distributed[-_]timeout[-_]minutes[= ](\d{1,6})\b")  # Megatron-LM
_SECONDS = re.compile(r"--ddp[-_]timeout[= ](\d{1,8})\b")  # transformers


def value(settings: RankSettings, *names: str) -> tuple[str, str] | None:
    """Name and value of the first of the names that is set."""
    return next(((name, settings.variables[name]) for name in names if name in settings.variables), None)


def whole(settings: RankSettings, *names: str) -> tuple[str, int] | None:
    """The same as a number; None also for what is none."""
    found = value(settings, *names)
    text = found[1].strip() if found else ""
    is_number = text.removeprefix("-").isdecimal() and text.isascii() and len(text) <= 18
    return (found[0], int(text)) if found and is_number else None


def is_on(settings: RankSettings, *names: str) -> str | None:
    """The name by which it is switched on."""
    found = value(settings, *names)
    return found[0] if found and found[1].strip().lower() in _TRUE else None


def is_off(settings: RankSettings, *names: str) -> str | None:
    """The name by which it is switched off, explicitly."""
    found = value(settings, *names)
    return found[0] if found and found[1].strip().lower() in _FALSE else None


def is_before(settings: RankSettings, version: Version) -> bool:
    """Whether the rank's torch is known and older."""
    return settings.torch is not None and settings.torch < version


def collective_timeout_s(settings: RankSettings) -> tuple[int, str]:
    """The time-out of collectives as far as it shows from outside, and where."""
    minutes = whole(settings, "DEEPSPEED_TIMEOUT")
    if minutes is not None:
        return minutes[1] * 60, "DEEPSPEED_TIMEOUT"
    in_minutes, in_seconds = _MINUTES.search(settings.command), _SECONDS.search(settings.command)
    if in_minutes:
        return int(in_minutes[1]) * 60, "--distributed-timeout-minutes"
    if in_seconds:
        return int(in_seconds[1]), "--ddp-timeout"
    return DEFAULT_TIMEOUT_S, "torch's default"
