"""State of the GPUs, in any form in which people keep it.

In: JSON of the probe's `gpu` source, or what nvidia-smi prints: XML of `-q -x`, CSV of `--query-gpu`, the table, the
columns of `dmon` and `pmon`; also several of them in one pasted session with its prompts. Out: `GpuLook`s.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from ncclprobe.model.errors import ParseError
from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse import gpu_csv, gpu_dmon, gpu_json, gpu_table, gpu_xml
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean, decoded

MAX_LINES = 100_000
_FIRST_LINES = 10
_MAX_LINE = 2_000
_MAX_HEAD_LINES = 400
_JSON = re.compile(rb"\s*\{\s*\"(?:driver|gpus)\"")
_XML = b"<nvidia_smi_log>"
_PROMPT = re.compile(
    r"\s*(?:\([\w.-]{1,40}\) ?)?\[?(?:[\w.-]{1,64}@(?P<host>[\w.-]{1,253})[^$#%>]{0,120})?[$%>#] ?"
    r"(?P<command>[\w./(-].*)"
)
_ROOT_PROMPT = re.compile(r"\s*# ?(?!(?:sudo |watch )?nvidia-smi\b)")  # `# gpu  pwr` is a header of dmon
_PEER = re.compile(r"(?P<host>[A-Za-z][\w.-]{0,252}|\d{1,3}(?:\.\d{1,3}){3}): ?(?=\S| )")
_UNAME = re.compile(r"Linux (?P<host>[\w.-]{1,253}) \d{1,2}\.\d{1,3}\.")
_FAILED = re.compile(
    r"Failed to initialize NVML|NVIDIA-SMI has failed|No devices were found|Field \".{1,60}\" is not a valid field"
)
_NO_GPU = "nothing in it is the output of nvidia-smi"


def is_gpu(head: bytes) -> bool:
    """Whether most of a file that begins so is GPU state; in a session with other commands it may be less."""
    if _JSON.match(head) or _XML in head:
        return True
    if b"\0" in head:
        return False
    lines = [line for line in _lines(head.decode("utf-8", "replace"))[:_MAX_HEAD_LINES] if line.strip()]
    told = [_of_gpu(line, section) for section in _sections(lines) for line in section.lines if not _is_frame(line)]
    return any(told) and 2 * sum(told) >= len(told)


def parse(data: bytes) -> Parsed[GpuLook]:
    """All looks at all devices, in order; ParseError for what holds none."""
    if _JSON.match(data):
        return gpu_json.parse(data)
    if _XML in data:
        return gpu_xml.parse(data)
    looks: list[GpuLook] = []
    lines, problems = _end_of(_lines(decoded(data, "output of nvidia-smi")))
    for section in _sections(lines):
        found = _parse_section(section)
        looks += found.records
        problems += found.problems
    if not looks and not problems:
        raise ParseError(_NO_GPU)
    return Parsed(records=tuple(looks), problems=tuple(dict.fromkeys(problems)))


def _end_of(lines: list[str]) -> tuple[list[str], list[str]]:
    """Of a file that somebody let grow for days the last lines, below the header that explains them."""
    if len(lines) <= MAX_LINES:
        return lines, []
    heads = [line for line in lines[:_FIRST_LINES] if _command_of(line)[1] or _is_header(line)]
    return heads + lines[-MAX_LINES:], [f"it has {len(lines)} lines; only the last {MAX_LINES} were looked at"]


def _is_header(line: str) -> bool:
    return gpu_csv.is_header(line) or gpu_dmon.is_header(line)


@dataclass(slots=True)
class _Section:
    """Lines of one host, the output of one command as far as prompts show it."""

    host: str | None
    command: str = ""
    lines: list[str] = field(default_factory=list)


def _lines(text: str) -> list[str]:
    return [line[:_MAX_LINE] for line in text.splitlines()]


def _sections(lines: list[str]) -> Iterator[_Section]:
    """Cut at prompts, and by the host that pdsh puts before each line."""
    host: str | None = None
    sections: dict[str | None, _Section] = {None: _Section(None)}
    for line in lines:
        prompt_host, command = _command_of(line)
        if command:
            yield from sections.values()
            host = prompt_host or host
            sections = {None: _Section(host, command)}
            continue
        peer = _PEER.match(line)
        key = peer["host"] if peer else None
        sections.setdefault(key, _Section(key or host, sections[None].command))
        sections[key].lines.append(line[peer.end() :] if peer else line)
        if named := _UNAME.match(line):
            host = named["host"]
    yield from sections.values()


def _command_of(line: str) -> tuple[str | None, str]:
    """Host and command of a prompt; no command where the line is none."""
    if _ROOT_PROMPT.match(line):
        return None, ""
    found = _PROMPT.match(line)
    return (found["host"], found["command"]) if found else (None, "")


def _parse_section(section: _Section) -> Parsed[GpuLook]:
    failed = next((line for line in section.lines if _FAILED.match(line)), None)
    if failed is not None:
        return Parsed(records=(), problems=(f"nvidia-smi answered: {clean(failed, 160)}",))
    if any(gpu_dmon.is_header(line) for line in section.lines):
        return Parsed(records=gpu_dmon.parse(section.lines, section.host))
    table = gpu_table.parse(section.lines, section.host)
    if table:
        return Parsed(records=table)
    if section.command and "nvidia-smi" not in section.command:
        return Parsed(records=())
    return gpu_csv.parse(section.lines, section.command, section.host)


def _of_gpu(line: str, section: _Section) -> bool:
    tells = (gpu_table.is_table_line, gpu_csv.is_header, gpu_csv.is_row, gpu_dmon.is_header, _FAILED.match)
    if any(tell(line) for tell in tells):
        return True
    if gpu_csv.columns_of(section.command) or any(map(gpu_csv.is_header, section.lines[:3])):
        return "," in line
    return any(map(gpu_dmon.is_header, section.lines[:3])) and gpu_dmon.is_row(line)


def _is_frame(line: str) -> bool:
    """Lines, headings and blanks of the table, which count neither way."""
    bare = line.strip()
    return not bare.strip("+-=| ") or (
        bare.startswith("|") and bare.endswith("|") and not gpu_table.is_table_line(line)
    )
