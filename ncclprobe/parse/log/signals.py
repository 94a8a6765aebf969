"""How programs write that a process ended.

In: an exit code, a signal's name (`SIGKILL`) or its words (`Segmentation fault`). Out: `exit_status` and `signal` as
`model.log.Died` has them.
"""

import re

from ncclprobe.model.log import Died

_NUMBERS = {
    "HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
    "USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "XCPU": 24,
}  # fmt: skip
_WORDS = {
    "segmentation fault": 11,
    "bus error": 7,
    "aborted": 6,
    "abort": 6,
    "killed": 9,
    "terminated": 15,
    "floating point exception": 8,
    "floating-point exception": 8,
    "illegal instruction": 4,
    "interrupt": 2,
    "hangup": 1,
}
SIGNAL_WORDS = (
    r"(?:Segmentation fault|Bus error|Aborted|Killed|Terminated|Floating[ -]point exception|Illegal instruction)"
)
_LAST_SIGNAL = 64


def number(name: str) -> int | None:
    """`SIGKILL`, `kill`, `9`, `Segmentation fault` as Linux counts them; None for what is no signal."""
    word = name.strip().rstrip(".").removesuffix("(core dumped)").strip()
    if re.fullmatch(r"[0-9]{1,2}", word):
        return int(word) if 0 < int(word) <= _LAST_SIGNAL else None
    return _NUMBERS.get(word.upper().removeprefix("SIG")) or _WORDS.get(word.lower())


def died(code: int, reason: str = "", *, is_first: bool = False, is_memory: bool = False) -> Died:
    """Of an exit code: -9 (Python's) and 137 (a shell's and a container's) are signal 9."""
    signal = -code if -_LAST_SIGNAL <= code < 0 else code - 128 if 128 < code <= 128 + _LAST_SIGNAL else None
    status = None if signal is not None else code
    return Died(exit_status=status, signal=signal, reason=reason, is_first=is_first, is_memory=is_memory)
