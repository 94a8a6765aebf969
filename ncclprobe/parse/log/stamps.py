"""Times that a tool (`ts`, `mpirun --timestamp-output`, a platform's console) put in front of a launcher's labels.

In: a line. Out: the time and the rest, where the rest begins with a label; a program's own time is part of its line.
"""

import re

_TIME = re.compile(
    r"(?P<open>\[)?(?P<time>"
    r"(?:[A-Z][a-z]{2},? )?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?(?: \d{4})?"
    r"|(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r")(?(open)\])[ \t|:-]{0,3}"
)
# Labels of torch, torchrun, mpirun, Ray and Kubernetes; srun's `3: ` is one only where most lines have it.
_LABEL = re.compile(
    r"\[(?:rank|default|trainer|worker)_?\d{1,7}\]:|\[[^\]\s,]{0,80},(?:mpirank:)?\d{1,6}[\],]"
    r"|\([^()\s]{1,80}(?:\([^()]{0,80}\))? ?[^()]{0,40}\bpid=\d|\[pod/"
)
_TASK = re.compile(r" {0,5}\d{1,5}: ?")


def split_stamp(text: str, *, has_tasks: bool = False) -> tuple[str, str] | None:
    """The time as text, and what follows it; None when no time stands before a label."""
    first = text[:1]
    found = _TIME.match(text) if first == "[" or first.isdigit() or first.isupper() else None
    if found is None:
        return None
    rest = text[found.end() :]
    is_label = _LABEL.match(rest) or (has_tasks and _TASK.match(rest))
    return (found["time"], rest) if is_label else None


def without_stamp(text: str) -> str:
    """What follows a time at the start of a line, whatever it is."""
    found = _TIME.match(text)
    return text[found.end() :] if found else text
