"""Stacks printed by `py-spy dump --json` (0.4.x): a list of threads for each process.

In: text that holds one list, or several, one after another. Out: a `StackDump` for each.

Names are qualified (`Loader.get`) by py-spy 0.4.3 on Python 3.11 and later, bare elsewhere. Frames of C functions are
there only with `--native`: their file is a shared object, a C++ source, or empty, and their line is 0.
"""

import json
from collections.abc import Iterator
from typing import Any

from ncclprobe.model.errors import ParseError
from ncclprobe.model.frames import Frame
from ncclprobe.model.stacks import StackDump, Thread
from ncclprobe.parse import fields
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.stack_reader import MAX_FRAMES, MAX_NAME, MAX_THREADS
from ncclprobe.parse.text import clean

_DECODER = json.JSONDecoder()


def parse(text: str) -> Parsed[StackDump]:
    """Frames innermost first; ParseError when no list of threads can be read, problems for what is damaged."""
    dumps: list[StackDump] = []
    problems: list[str] = []
    try:
        for document in _documents(text):
            dump, found = _dump(document)
            dumps.append(dump)
            problems += found
    except ParseError as error:
        if not dumps:
            raise
        problems.append(str(error))
    return Parsed(records=tuple(dumps), problems=tuple(problems))


def _documents(text: str) -> Iterator[Any]:
    at = _next(text, 0)
    if at == len(text):
        raise ParseError("not py-spy JSON: it is empty")
    while at < len(text):
        try:
            document, at = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError) as error:
            raise ParseError(f"not py-spy JSON, or cut off: {clean(str(error), 120)}") from None
        yield document
        at = _next(text, at)


def _next(text: str, at: int) -> int:
    """Where the next list begins; lines between two (a shell's, an error of py-spy) are passed over."""
    found = text.find("[", at)
    return len(text) if found < 0 else found


def _dump(document: Any) -> tuple[StackDump, tuple[str, ...]]:
    if not isinstance(document, list) or not all(isinstance(item, dict) and "frames" in item for item in document):
        raise ParseError("not py-spy JSON: no list of threads with frames")
    threads = fields.read_all(document[:MAX_THREADS], "threads", _thread)
    if document and not threads.records:
        raise ParseError(f"not py-spy JSON: {threads.problems[0]}")
    pid = next((item["pid"] for item in document if type(item.get("pid")) is int and item["pid"] >= 0), None)
    return StackDump(pid=pid, threads=threads.records), threads.problems


def _thread(item: dict[str, Any]) -> Thread:
    frames = item["frames"]
    if not isinstance(frames, list):
        raise TypeError("frames are no list")
    return Thread(
        name=fields.text(item, "thread_name", MAX_NAME),
        tid=fields.whole(item, "os_thread_id"),
        stack=tuple(map(_frame, frames[:MAX_FRAMES])),
        is_active=fields.flag(item, "active"),
        owns_gil=fields.flag(item, "owns_gil"),
    )


def _frame(frame: dict[str, Any]) -> Frame:
    function, file, line = frame["name"], frame["filename"], frame.get("line")
    if not isinstance(function, str) or not isinstance(file, str):
        raise TypeError("a frame without names")
    return Frame(clean(function, MAX_NAME), clean(file), line if type(line) is int and line > 0 else None)
