"""Which hosts to ask.

In: the text after `--hosts`: a file, a set such as `node[01-04,07]`, or `-` for standard input.
Out: `Host`s, each once.

One line of a file, or the whole of a set, reads `HOST[,HOST...] [slots=N]`, where HOST is `[user@]name[:number]`, with
any number of `[01-04,07]` ranges in the name (zero padding is kept) and IPv6 addresses in brackets. The number is a
port, but a bare `name:8` is a slot count, as MPI host files write it: up to 64, without `user@`, and not 22. Slots are
read and not needed.
"""

import ipaddress
import itertools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ncclprobe.model.errors import UsageError

MAX_HOSTS = 16_384
MAX_TEXT_BYTES = 4 * 1024 * 1024
MAX_SLOTS = 64
MAX_NAME = 253
SSH_PORT = 22

LINE_ADVICE = "write one host a line: name, user@name:port, name slots=8, or node[01-04,07]"
SET_ADVICE = "write a set such as node[01-04,07], user@name:port or [::1]:22, or name a file with one host a line"

_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?\.?", re.ASCII)
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*\$?", re.ASCII)
_ZONE = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_RANGES = re.compile(r"\[([0-9,-]*)\]", re.ASCII)
_SPAN = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)
_SLOTS = re.compile(r"(?:slots|max[-_]slots)=[0-9]{1,6}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,5}", re.ASCII)
_PIECE = re.compile(r"\[[^\[\]]*\]|[^,\[]+|\[|,")


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host to ask. `name` is as the user wrote it; `user` and `port` are None where the SSH configuration decides."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None


class _MalformedError(ValueError):
    """What is wrong with one entry; the reader adds where it stands."""


def read_hosts(text_or_path: str, stdin: TextIO | None) -> tuple[Host, ...]:
    """The hosts that `--hosts` names, in its order. UsageError says which line is wrong, and how to write it.

    A path that exists, has a `/`, or ends in `.txt` is a file; any other text is a set. `-` reads `stdin`.
    """
    text = text_or_path.strip()
    if not text:
        raise UsageError("--hosts is empty", SET_ADVICE)
    if text == "-":
        return _hosts_of_lines(_read_stream(stdin), "standard input")
    if _is_path(text):
        return _hosts_of_lines(_read_file(text), text if text.isprintable() else _shown(text))
    return _hosts_of_set(text)


def _is_path(text: str) -> bool:
    return "/" in text or text.endswith(".txt") or _exists(text)


def _exists(text: str) -> bool:
    try:
        return Path(text).exists()
    except (OSError, ValueError):  # longer than any file name, or not one at all
        return False


def _read_file(name: str) -> str:
    place = f"hosts file {name if name.isprintable() else _shown(name)}"
    try:
        with Path(name).expanduser().open("rb") as file:
            return _decoded(file.read(MAX_TEXT_BYTES + 1), place)
    except FileNotFoundError:
        raise UsageError(f"{place} does not exist", "check the path, or write the hosts as a set") from None
    except IsADirectoryError:
        raise UsageError(f"{place} is a directory", "name a text file with one host a line") from None
    except (OSError, RuntimeError, ValueError) as error:  # `~nobody/x` is a RuntimeError, a NUL byte a ValueError
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"{place} cannot be read: {reason}", "name a readable file with one host a line") from None


def _read_stream(stdin: TextIO | None) -> str:
    if stdin is None:
        raise UsageError("--hosts - reads standard input, and there is none", "pipe the hosts in, one a line")
    try:
        text = stdin.read(MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}", "pipe the hosts in, one a line") from None
    except ValueError:  # not UTF-8
        text = "\0"
    return _decoded(text.encode("utf-8", "surrogatepass"), "standard input")


def _decoded(data: bytes, place: str) -> str:
    if len(data) > MAX_TEXT_BYTES:
        raise UsageError(f"{place} is larger than {MAX_TEXT_BYTES // 1024**2} MiB", "name a file with one host a line")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise UsageError(f"{place} is not text", "name a text file with one host a line")
    return text


def _hosts_of_lines(text: str, place: str) -> tuple[Host, ...]:
    lines = ((number, _without_comment(line)) for number, line in enumerate(text.split("\n"), start=1))
    hosts = _unique(
        (_entries(line, f"{place} line {number}", LINE_ADVICE), f"line {number}", f"{place} line {number}")
        for number, line in lines
        if line
    )
    if not hosts:
        raise UsageError(f"{place} names no host", LINE_ADVICE)
    return hosts


def _hosts_of_set(text: str) -> tuple[Host, ...]:
    return _unique([(_entries(text, "--hosts", SET_ADVICE), "the same set", "--hosts")])


def _without_comment(line: str) -> str:
    return re.split(r"(?:^|\s)#", line, maxsplit=1)[0].strip()


def _unique(lines: Iterable[tuple[Iterator[Host], str, str]]) -> tuple[Host, ...]:
    hosts: list[Host] = []
    first_seen: dict[tuple[str, str | None, int | None], str] = {}
    for entries, short_place, place in lines:
        for host in entries:
            key = (host.address.lower(), host.user, host.port)
            if key in first_seen:
                raise UsageError(f"{place}: {host.name} is named already in {first_seen[key]}", "name each host once")
            first_seen[key] = short_place
            hosts.append(host)
            if len(hosts) > MAX_HOSTS:
                raise UsageError(f"{place}: more than {MAX_HOSTS} hosts", "ask the hosts of one job at a time")
    return tuple(hosts)


def _entries(line: str, place: str, advice: str) -> Iterator[Host]:
    try:
        words = line.split()
        while len(words) > 1 and _SLOTS.fullmatch(words[-1]):
            words.pop()
        for word in _split_on_commas(" ".join(words)):
            yield from _expanded(word.strip())
    except _MalformedError as error:
        raise UsageError(f"{place}: {error}", advice) from None


def _split_on_commas(text: str) -> list[str]:
    """Splits `a[1,2],b` into `a[1,2]` and `b`, in time that grows with the length only."""
    words = [[""]]
    for piece in _PIECE.findall(text):
        if piece == ",":
            words.append([])
        else:
            words[-1].append(piece)
    return ["".join(word) for word in words]


def _expanded(word: str) -> Iterator[Host]:
    """Hosts of one `[user@]name[:number]`, whose name may hold ranges."""
    if not word:
        raise _MalformedError("an empty host name")
    if word.startswith("-"):
        raise _MalformedError(f"{_shown(word)} is an option, not a host")
    if " " in word:
        raise _MalformedError(f"{_shown(word)} is more than a host")
    user, at, rest = word.rpartition("@")
    if at and not _USER.fullmatch(user):
        raise _MalformedError(f"{_shown(user)} is no user name")
    pattern, number = _split_number(rest)
    port = None if number is None or (not at and _is_slots(number)) else number
    for address in _addresses(pattern):
        yield _host(address, user if at else None, port)


def _host(address: str, user: str | None, port: int | None) -> Host:
    shown = f"[{address}]" if ":" in address and port is not None else address
    name = "".join((f"{user}@" if user is not None else "", shown, f":{port}" if port is not None else ""))
    return Host(name=name, address=address, user=user, port=port)


def _is_slots(number: int) -> bool:
    return number <= MAX_SLOTS and number != SSH_PORT


def _split_number(text: str) -> tuple[str, int | None]:
    """A name and the number after its colon. A bare IPv6 address has colons and no number."""
    if not text.startswith("[") and text.count(":") > 1:
        return text, None
    name, colon, number = text.rpartition(":")
    if not colon or number.endswith("]"):
        return text, None
    if not _NUMBER.fullmatch(number) or not 0 < int(number) < 65_536:
        raise _MalformedError(f"{_shown(number)} is no port (1 to 65535) after {_shown(name)}")
    return name, int(number)


def _addresses(pattern: str) -> Iterator[str]:
    """Names that a pattern stands for, or the one IPv6 address that it is."""
    if ":" in pattern:
        yield _ipv6(pattern)
        return
    choices: list[tuple[str, ...]] = []
    count = 1
    for index, part in enumerate(_RANGES.split(pattern)):  # text, inside of a bracket, text, ...
        choices.append(_span_values(part) if index % 2 else (part,))
        count *= len(choices[-1])
        if count > MAX_HOSTS:
            raise _MalformedError(f"{_shown(pattern)} names more than {MAX_HOSTS} hosts")
    for pieces in itertools.product(*choices):
        name = "".join(pieces)
        if not _NAME.fullmatch(name) or len(name) > MAX_NAME or ".." in name:
            raise _MalformedError(f"{_shown(name)} is no host name")
        yield name


def _span_values(text: str) -> tuple[str, ...]:
    """Numbers of `01-04,07`, padded as written."""
    values: list[str] = []
    for item in text.split(","):
        span = _SPAN.fullmatch(item)
        if span is None:
            raise _MalformedError(f"{_shown(f'[{text}]')} is no list of numbers and ranges")
        first, last = span[1], span[2] or span[1]
        width = len(first) if first.startswith("0") else 0
        if int(last) < int(first) or (last.startswith("0") and len(last) != len(first)):
            raise _MalformedError(f"the range {item} does not run from a number to a larger one of the same padding")
        if int(last) - int(first) + len(values) >= MAX_HOSTS:
            raise _MalformedError(f"the range {item} is longer than {MAX_HOSTS} hosts")
        values.extend(f"{value:0{width}d}" for value in range(int(first), int(last) + 1))
    return tuple(values)


def _ipv6(text: str) -> str:
    address = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    plain, percent, zone = address.partition("%")
    try:
        ipaddress.IPv6Address(plain)
    except ValueError:
        raise _MalformedError(f"{_shown(text)} is no host name and no IPv6 address") from None
    if percent and not _ZONE.fullmatch(zone):
        raise _MalformedError(f"{_shown(text)} has no valid zone after %")
    return address


def _shown(text: str) -> str:
    """Hostile text, short and without control characters."""
    return repr(text if len(text) <= 60 else text[:57] + "...")
