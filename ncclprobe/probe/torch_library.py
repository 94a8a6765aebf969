"""Which torch a process has loaded, told from the outside.

In: a pid. Out: its version, from the package it was installed by.
"""

import re
from collections.abc import Callable
from pathlib import Path

from ncclprobe.model.checkup import Version
from ncclprobe.probe import proc
from ncclprobe.probe.inside import list_inside

_MAPS_LIMIT_BYTES = 8 << 20
_MAPPED = re.compile(rb"(/[^\n]*)/torch/lib/lib(?:torch|c10)[^/\n]*\.so")
_DIST_INFO = re.compile(r"torch-(\d{1,3})\.(\d{1,3})\.(\d{1,3})[^/]{0,60}\.(?:dist|egg)-info")


def loaded_torch(
    pid: int, root: Path = proc.ROOT, names_in: Callable[[int, str], list[str]] = list_inside
) -> Version | None:
    """None where none is mapped, where we may not look, and for one that was built in place."""
    match = _MAPPED.search(proc.read(pid, "maps", _MAPS_LIMIT_BYTES, root) or b"")
    if match is None:
        return None
    try:
        names = names_in(pid, match[1].decode("utf-8", "replace"))
    except OSError:
        return None
    known = filter(None, map(_DIST_INFO.fullmatch, names))
    return next(((int(one[1]), int(one[2]), int(one[3])) for one in known), None)
