"""Which NCCL a process has loaded, told from the outside.

In: a pid. Out: the path of the library and its version, from its file name or from the package it was installed by.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ncclprobe.probe import proc
from ncclprobe.probe.inside import list_inside

Version = tuple[int, int, int]
_MAPS_LIMIT_BYTES = 8 << 20
_MAPPED = re.compile(rb"/[^\n]*/libnccl[^/\n]{0,40}\.so[.\d]*")
_PLUGIN = re.compile(r"/libnccl[-_](?:net|tuner|profiler|env|rdma|collnet)\b")
_IN_NAME = re.compile(r"\.so\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$")
# The wheel's file is libnccl.so.2, and its version in the name of the folder beside.
_WHEEL = "/nvidia/nccl/"
_DIST_INFO = re.compile(r"nvidia_nccl_cu\d{1,3}-(\d{1,3})\.(\d{1,3})\.(\d{1,3})(?:\.\w{1,20})?\.dist-info")


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclLibrary:
    """`version` is None where neither the name nor the package tells it."""

    path: str
    version: Version | None


def loaded_nccl(
    pid: int, root: Path = proc.ROOT, names_in: Callable[[int, str], list[str]] = list_inside
) -> NcclLibrary | None:
    """The library; None where none is mapped, as in a torch that has NCCL linked in, or where we may not look."""
    maps = proc.read(pid, "maps", _MAPS_LIMIT_BYTES, root) or b""
    paths = (path.decode("utf-8", "replace") for path in _MAPPED.findall(maps))
    path = next((path for path in paths if not _PLUGIN.search(path)), None)
    if path is None:
        return None
    named = _IN_NAME.search(path)
    version = (int(named[1]), int(named[2]), int(named[3])) if named else _of_wheel(pid, path, names_in)
    return NcclLibrary(path=path, version=version)


def _of_wheel(pid: int, path: str, names_in: Callable[[int, str], list[str]]) -> Version | None:
    """The oldest, where several packages are installed over one another."""
    packages, found, _ = path.rpartition(_WHEEL)
    if not found:
        return None
    try:
        names = names_in(pid, packages)
    except OSError:
        return None
    matches = filter(None, map(_DIST_INFO.fullmatch, names))
    return min(((int(match[1]), int(match[2]), int(match[3])) for match in matches), default=None)
