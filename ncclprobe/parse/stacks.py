"""Stacks printed by `py-spy dump --json` (0.4.x).

In: its standard output. Out: one `StackDump` of the process.

Names are qualified (`Loader.get`) by py-spy 0.4.3 on Python 3.11 and later, bare elsewhere. Frames of C functions are
there only with `--native`: their file is a shared object, a C++ source, or empty, and their line is 0.
"""

from typing import Any

from ncclprobe.model.errors import ParseError
from ncclprobe.model.frames import Frame
from ncclprobe.model.stacks import StackDump, Thread
from ncclprobe.parse import fields
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

_MAX_FRAMES = 2_000
_MAX_THREADS = 20_000
_MAX_NAME = 512


def parse(data: bytes) -> Parsed[StackDump]:
    """All threads, frames innermost first; ParseError when the text is no such list, a problem for damaged threads."""
    document = fields.load_json(data, "py-spy JSON")
    if not isinstance(document, list) or not all(isinstance(item, dict) and "frames" in item for item in document):
        raise ParseError("not py-spy JSON: no list of threads with frames")
    threads = fields.read_all(document[:_MAX_THREADS], "threads", _thread)
    if document and not threads.records:
        raise ParseError(f"not py-spy JSON: {threads.problems[0]}")
    pid = next((item["pid"] for item in document if type(item.get("pid")) is int), None)
    return Parsed(records=(StackDump(pid=pid, threads=threads.records),), problems=threads.problems)


def _thread(item: dict[str, Any]) -> Thread:
    frames = item["frames"]
    if not isinstance(frames, list):
        raise TypeError("frames are no list")
    return Thread(
        name=fields.text(item, "thread_name", _MAX_NAME),
        tid=fields.whole(item, "os_thread_id"),
        stack=tuple(map(_frame, frames[:_MAX_FRAMES])),
        is_active=fields.flag(item, "active"),
        owns_gil=fields.flag(item, "owns_gil"),
    )


def _frame(frame: dict[str, Any]) -> Frame:
    function, file, line = frame["name"], frame["filename"], frame.get("line")
    if not isinstance(function, str) or not isinstance(file, str):
        raise TypeError("a frame without names")
    return Frame(clean(function, _MAX_NAME), clean(file), line if type(line) is int and line > 0 else None)
