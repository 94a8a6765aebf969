"""Stacks in any form they come in: py-spy's JSON and text, pystack, gdb, faulthandler, the kernel's.

In: a file's bytes. Out: one `StackDump` for each process in it; lines of several writers are told apart first.
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from ncclprobe.model.errors import ParseError
from ncclprobe.model.stacks import StackDump
from ncclprobe.parse import (
    stack_faulthandler,
    stack_gdb,
    stack_headings,
    stack_kernel,
    stack_pyspy_json,
    stack_text_pyspy,
    stack_text_pystack,
)
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.stack_labels import Section, split
from ncclprobe.parse.stack_reader import Format
from ncclprobe.parse.text import clean, decoded

_FORMATS = (
    stack_text_pystack.FORMAT,
    stack_faulthandler.FORMAT,
    stack_gdb.FORMAT,
    stack_text_pyspy.FORMAT,
    stack_kernel.FORMAT,
)
_JSON = re.compile(r"\s*\[\s*(?:\{|\]|$)")
_REFUSED = re.compile(r"\s*(?:Error: |Permission Denied|💀 )(?P<why>.*)")
_LOCAL_RANK = re.compile(r"\s--local[_-]rank[= ](\d{1,4})(?!\S)")
_SURE_SHARE = 0.5  # of the lines: a log that holds one traceback among others is a log
_MAX_HEADINGS = 3  # above each thread: a log whose lines tell their rank is full of such lines
_MAX_PROBLEMS = 100


def parse(data: bytes) -> Parsed[StackDump]:
    """ParseError when there is no stack in it; a problem for each part that cannot be read."""
    dumps: list[StackDump] = []
    problems: list[str] = []
    for section in _sections(decoded(data, "stacks")):
        try:
            found, refused = _read(section)
        except ParseError as error:
            found, refused = [], [str(error)]
        owner = section if _is_of_one(section, found) else replace(section, rank=None, local_rank=None, pid=None)
        dumps += [_labelled(dump, owner) for dump in found]
        problems += [f"{_name(section)}{problem}" for problem in refused]
    if not dumps:
        raise ParseError(problems[0] if problems else "not stacks: no thread of any known form")
    return Parsed(records=tuple(dumps), problems=tuple(problems[:_MAX_PROBLEMS]))


def is_stacks(head: bytes) -> bool:
    """Whether a file that starts with `head` is stacks and little else; never raises."""
    if b"\0" in head:
        return False
    text = head.decode("utf-8-sig", "replace")
    sections = list(_sections(text))
    if any(_is_json(section) for section in sections):
        return b'"frames"' in head and b'"thread_name"' in head
    lines = [line for section in sections for line in section.lines if line.strip()]
    used = [item for line in lines if (item := next((form for form in _FORMATS if form.header.match(line)), None))]
    forms = list({item.name: item for item in used}.values())
    known = sum(1 for line in lines if any(item.line.match(line) for item in forms))
    headings = sum(1 for line in text.splitlines() if line.strip()) - len(lines)
    strange = len(lines) - known + max(0, headings - _MAX_HEADINGS * len(used))
    return bool(used) and known > _SURE_SHARE * (known + strange)


def _sections(text: str) -> Iterator[Section]:
    """What each writer said, below each heading; of two that say the rank the heading is the inner one."""
    for section in split(text):
        for part in stack_headings.split(section.lines, _is_of_stack):
            yield Section(
                rank=section.rank if part.rank is None else part.rank,
                local_rank=section.local_rank if part.local_rank is None else part.local_rank,
                pid=section.pid if part.pid is None else part.pid,
                host=section.host,
                title=section.title,
                lines=part.lines,
                is_headed=bool(part.title),
            )


def _is_of_stack(line: str) -> bool:
    return any(item.line.match(line) for item in _FORMATS)


def _read(section: Section) -> tuple[list[StackDump], list[str]]:
    """The section's dumps, and what of it cannot be read."""
    if _is_json(section):
        parsed = stack_pyspy_json.parse("\n".join(section.lines))
        return list(parsed.records), list(parsed.problems)
    found = [dump for item, lines in _blocks(section.lines) for dump in item.read(lines)]
    refusals = [match["why"] or match[0] for line in section.lines if (match := _REFUSED.match(line))]
    return found, [clean(f"no stacks: {why.strip()}", 200) for why in refusals[:_MAX_PROBLEMS]]


def _is_json(section: Section) -> bool:
    first = next((line for line in section.lines if line.strip()), "")
    return _JSON.match(first) is not None and not first.startswith(("[New", "[Thread"))


def _blocks(lines: list[str]) -> Iterator[tuple[Format, list[str]]]:
    """Runs of lines of one format: each belongs to that of the last line that begins a thread."""
    current: Format | None = None
    block: list[str] = []
    for line in lines:
        begun = next((item for item in _FORMATS if item.header.match(line)), None)
        if begun and begun is not current:
            if current:
                yield current, block
            current, block = begun, []
        block.append(line)
    if current:
        yield current, block


def _labelled(dump: StackDump, section: Section) -> StackDump:
    return replace(
        dump,
        pid=dump.pid if dump.pid is not None else section.pid,
        rank=section.rank,
        local_rank=section.local_rank if section.local_rank is not None else _local_rank(dump.command),
        host=clean(section.host, 255),
        command=dump.command or clean(section.title, 255),
    )


def _local_rank(command: str) -> int | None:
    """What torch.distributed.launch and DeepSpeed tell a process by its command line."""
    found = _LOCAL_RANK.search(command)
    return int(found[1]) if found else None


def _is_of_one(section: Section, dumps: list[StackDump]) -> bool:
    """A heading tells of one process and what it started; below one for several, nobody is told from the others."""
    own = {dump.pid for dump in dumps if not dump.is_worker and dump.parent_pid is None}
    return not section.is_headed or len(own) < 2


def _name(section: Section) -> str:
    if section.rank is not None:
        return f"rank {section.rank}: "
    return f"{clean(section.host, 255)}: " if section.host else ""
