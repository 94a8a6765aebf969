"""Lines of the kernel's log, in every form that tools print them.

In: text of dmesg in any of its time forms, of `journalctl -k`, of kern.log or syslog, of /dev/kmsg, or JSON of
`dmesg -J` and `journalctl -o json`; also behind the host name that pdsh puts before each line. Out: `KernelLine`s: the
kernel's own words, and when and on which host they were said.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.log.needles import Needles
from ncclprobe.parse.text import clean

MAX_LINE = 4_096
_MAX_QUOTE = 200
_PIECE_BYTES = 4 << 20
_JSON_HEAD = 8_192

# What stands before the kernel's own words. A line of another program keeps that program's name before its words, so
# no pattern of the kernel's words, which all start at the beginning, can match it.
_STAMP = r"""
    (?P<when>
        \[ \s* \d+ \. \d+ [^\]]{0,20} \]                         # seconds since boot; dmesg -d adds a difference
      | \[ \s* (?: \+ \d+ \. \d+ | \w{3} \s? \d{1,2} \s \d\d:\d\d ) \]                             # dmesg -H, -e
      | \[ \w{3} \s \w{3} \s [ \d]\d \s [\d:]{8} \s \d{4} \]       # dmesg -T
      | (?: \w{3} \s )? \d{4}-\d\d-\d\d [T\ ] [\d:.,]{8,20} (?: \s \w{1,5} | [+-]\d\d:?\d\d | Z )?   # ISO 8601
      | \w{3} \s [\ \d]\d \s \d\d:\d\d:\d\d (?: \. \d{1,9} )?        # syslog
      | \d{9,11} \. \d{1,9}                                      # seconds since 1970
    )"""
_LINE = re.compile(
    rf"""
    \s{{0,16}}
    (?: (?P<peer> [\w.-]{{1,253}} ) : \s (?= [<\[] | \d{{4}}-\d\d- | \w{{3}}\s[\ \d]\d\s ) )?   # pdsh, srun -l
    (?: kern \s* : \s* \w+ \s* : \s+ )?                          # dmesg -x: facility and level
    (?: <\d{{1,3}}> )?                                             # dmesg -r: priority
    (?: \d+ , \d+ , (?P<usec>\d{{1,16}}) , [^;]{{0,64}} ; )?         # /dev/kmsg
    {_STAMP}? \s*
    (?: (?P<host>\S{{1,253}}) \s kernel: \s* )?                    # syslog and the journal: host and program
    (?: \[ \s* \d+ \. \d+ \] \s* )?                              # the boot clock behind another time
    (?: \[ \s* [TC]\d+ \] \s* )?                                   # the caller, where the kernel is built so
    (?P<words> .* )
    """,
    re.VERBOSE | re.DOTALL,
)
_BOOT = "setting system clock to "
_BOOT_WORDS = re.compile(r".{0,80}?setting system clock to [\d-]{10}[T ][\d:]{8} UTC \((?P<unix_s>\d{9,11})\)")
_SINCE_BOOT = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?![0-9])")
_SINCE_1970 = re.compile(r"([0-9]{9,11})\.([0-9]{1,9})$")
_ZONE = re.compile(r"(?:Z| [A-Z]{1,5}| ?[+-]\d\d:?\d\d)$")
_COLOUR = re.compile(r"\x1b\[[\d;]{0,20}m")

_DMESG = re.compile(r'\s*\{\s*"dmesg"')
# Of `dmesg -J` the two keys that count.
_MESSAGE = re.compile(
    r'"msg"\s{0,9}:\s{0,9}(?P<msg>"(?:[^"\\]|\\.){0,65536}")|"time"\s{0,9}:\s{0,9}"?(?P<time>[^",}\n]{1,40})'
)


@dataclass(frozen=True, slots=True)
class KernelLine:
    """`number` counts from 1; `words` are the kernel's own, as they stand. `host` is None where the line names none."""

    number: int
    words: str
    host: str | None
    _when: str
    _text: str
    _times: "_Times"

    def place(self) -> dict[str, Any]:
        """Where and when, as every event of the kernel says it: `line`, `when`, `when_ns`, `quote`, `host`."""
        return {
            "line": self.number,
            "when": clean(self._when),
            "when_ns": self._times.read(self._when),
            "quote": clean(self._text.strip(), _MAX_QUOTE),
            "host": clean(self.host) if self.host else None,
        }


def lines_with(data: bytes, words: Iterable[str]) -> Iterator[KernelLine]:
    """The lines in which one of the words of the kernel is found; in order."""
    times = _Times()
    read = _from_json if is_json(data[:_JSON_HEAD]) else _from_text
    for line in read(data, (*words, _BOOT), times):
        if not times.learns_boot(line):
            yield line


def is_json(head: bytes) -> bool:
    """Whether it is JSON that dmesg or journalctl writes."""
    start = head.lstrip()[:_JSON_HEAD]
    return start[:1] == b"{" and (re.match(rb'\{\s*"dmesg"', start) is not None or b'"__REALTIME_TIMESTAMP"' in start)


class _Times:
    """Reads the times of one log."""

    def __init__(self) -> None:
        self._clock = Clock()
        self._boot_ns: int | None = None

    def learns_boot(self, line: KernelLine) -> bool:
        """Whether it is the line in which the kernel says what time it is; then times since boot are known."""
        found, when = _BOOT_WORDS.match(line.words), _SINCE_BOOT.match(line._when)
        if found and when and not _SINCE_1970.match(line._when):
            self._boot_ns = int(found["unix_s"]) * 10**9 - _ns(when)
        return found is not None

    def read(self, when: str) -> int | None:
        """Time by the clock on the wall of the writer, in ns since 1970: a zone that it names is left out."""
        if dated := _SINCE_1970.match(when):
            return _ns(dated)
        if running := _SINCE_BOOT.match(when):
            return self._boot_ns + _ns(running) if self._boot_ns is not None else None
        return self._clock.read(_ZONE.sub("", when)) if when else None


def _ns(seconds: "re.Match[str]") -> int:
    """Whole seconds and their part, as text: `495`, `582151` -> 495582151000."""
    return int(seconds[1]) * 10**9 + int(seconds[2].ljust(9, "0"))


def _from_text(data: bytes, words: Iterable[str], times: _Times) -> Iterator[KernelLine]:
    needles, number, start = Needles(word.encode() for word in words), 1, 0
    while start < len(data):
        end = data.find(b"\n", start + _PIECE_BYTES) + 1 or len(data)
        piece = data[start:end]
        counted = done = 0
        for place in needles.places(piece):
            if place < done:
                continue
            begin = piece.rfind(b"\n", 0, place) + 1
            number += piece.count(b"\n", counted, begin)
            counted, done = begin, piece.find(b"\n", place) + 1 or len(piece)
            line = _line(number, piece[begin : min(done, begin + MAX_LINE)].decode("utf-8", "replace"), times)
            if line is not None:
                yield line
        number += piece.count(b"\n", counted)
        start = end


def _line(number: int, raw: str, times: _Times) -> KernelLine | None:
    text = (_COLOUR.sub("", raw) if "\x1b" in raw else raw).rstrip("\r\n")
    found = _LINE.match(text)
    if found is None:
        return None
    when = f"{int(found['usec']) / 1e6:.6f}" if found["usec"] else (found["when"] or "").strip("[] ")
    host = found["host"] or (found["peer"] if found["peer"] and not found["peer"].isdigit() else None)
    return KernelLine(number, found["words"], host, when, text, times)


def _from_json(data: bytes, words: Iterable[str], times: _Times) -> Iterator[KernelLine]:
    text, wanted = data.decode("utf-8", "replace"), tuple(words)
    said = _from_dmesg(text) if _DMESG.match(text) else _from_journal(text)
    number, counted = 1, 0
    for place, when, host, message in said:
        if any(word in message for word in wanted):
            number += text.count("\n", counted, place)
            counted = place
            yield KernelLine(number, message[:MAX_LINE], host, when, message, times)


_Saying = tuple[int, str, str | None, str]  # where in the text, when, host, words


def _from_dmesg(text: str) -> Iterator[_Saying]:
    """Key by key, so that a document that is cut off costs only its last message."""
    when = ""
    for found in _MESSAGE.finditer(text):
        if found["time"] is not None:
            when = found["time"].strip()
            continue
        words = _loaded(found["msg"])
        if isinstance(words, str):
            yield found.start(), when, None, words
        when = ""


def _from_journal(text: str) -> Iterator[_Saying]:
    """One object a line, or with `-o json-pretty` over several; what is no object is skipped."""
    starts = [found.start() for found in re.finditer(r"^\{", text, re.MULTILINE)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        try:
            entry, _ = json.JSONDecoder().raw_decode(text[start:end])
        except (ValueError, RecursionError):
            continue
        words = _message(entry.get("MESSAGE"))
        is_kernel = "kernel" in (entry.get("_TRANSPORT"), entry.get("SYSLOG_IDENTIFIER"))
        if words is None or not is_kernel:
            continue
        usec, host = str(entry.get("__REALTIME_TIMESTAMP")), entry.get("_HOSTNAME")
        when = f"{usec[:-6]}.{usec[-6:]}" if re.fullmatch(r"[0-9]{15,17}", usec) else ""
        yield start, when, host if isinstance(host, str) else None, words


def _message(value: Any) -> str | None:
    """Text, or a list of bytes where it is not fit to print."""
    if isinstance(value, list) and all(type(part) is int and 0 <= part < 256 for part in value):
        return bytes(value).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except ValueError:
        return None
