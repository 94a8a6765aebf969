"""torch flight-recorder dumps, pickle or JSON, every version from torch 2.2 on.

In: the bytes of one rank's dump. Out: one `Recording`. A dump names neither its rank nor its host: the caller knows.

Formats (torch c10d FlightRecorder, read from the headers of each release): torch 2.2 writes a bare list of entries with
`seq_id`; 2.3 (version "1.4") a dict with `pg_config = {id: [ranks]}`; 2.4 ("2.1") adds `process_group`, splits the
counter into `collective_seq_id` and `p2p_seq_id` and writes ranks as text; 2.5 ("2.4") adds `pg_status` and the JSON
form, which has no frames and leaves out empty `entries`; 2.8 ("2.9") `nccl_version`, renamed `comm_lib_version` in 2.9
("2.10").
"""

import json
import re
from array import array
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Any

from ncclprobe.model.collectives import GroupStatus, Recording
from ncclprobe.model.errors import ParseError
from ncclprobe.parse import data_pickle
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.recorder_entries import DAMAGE, Entries
from ncclprobe.parse.repeated_entries import Folded, fold
from ncclprobe.parse.text import clean

NEWEST_KNOWN = (2, 10)
_KEYS = ("version", "pg_config", "pg_status", "entries")
_COUNTERS = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
_RANKS = re.compile(r"\[ *(?:\d{1,7}(?:, *\d{1,7})*)? *\]")
_MAX_RANKS = 1_000_000
_LIMIT = 2**62


def parse(data: bytes) -> Parsed[Recording]:
    """Reads a whole dump. ParseError when it is no dump, or cut off; a problem for each kind of damage inside it."""
    if not data:
        raise ParseError("the file is empty")
    is_json = data[:1] in (b"{", b"[") or data[:1].isspace()
    loaded, folded = (_load_json(data), None) if is_json else _load_pickle(data)
    if isinstance(loaded, list):
        document = {"version": "1.0 (torch 2.2)", "entries": loaded}
    elif isinstance(loaded, dict) and any(key in loaded for key in _KEYS):
        document = {"entries": [], **loaded} if is_json else loaded
    else:
        raise ParseError("not a flight-recorder dump: none of its keys is there")
    return _read(document, folded)


def _load_pickle(data: bytes) -> tuple[Any, Folded | None]:
    """Without the entries that are told by their numbers, where what is left is a whole dump; else all of it."""
    folded = fold(data) if len(data) <= data_pickle.MAX_BYTES else None
    if folded is not None:
        with suppress(ParseError):  # what is wrong is said of the whole
            loaded = data_pickle.load(folded.data)
            listed = loaded.get("entries") if isinstance(loaded, dict) else loaded
            if isinstance(listed, list) and len(listed) == folded.count:
                return loaded, folded
    return data_pickle.load(data), None


def _load_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"damaged, or cut off: {clean(str(error), 120)}") from None


def _read(document: dict[str, Any], folded: Folded | None) -> Parsed[Recording]:
    problems: list[str] = []
    version = _short_text(document.get("version")) or "unknown"
    if _is_newer(version):
        problems.append(f"version {version} of the dump is newer than this ncclprobe knows; read as 2.10")
    entries = Entries(_groups(document.get("pg_config"), problems))
    is_whole = _read_entries(document.get("entries"), folded, entries, problems)
    entries.add_unused_groups()
    recording = Recording(
        version=version,
        library_version=_short_text(document.get("comm_lib_version") or document.get("nccl_version")),
        is_whole=is_whole,
        groups=tuple(entries.groups.values()),
        group_of_id=entries.group_of_id,
        statuses=_statuses(document.get("pg_status"), problems),
        signatures=tuple(entries.signatures),
        stacks=tuple(entries.stacks),
        backends=entries.backends,
        group_of=array("H", entries.column(attrgetter("group"))),
        signature_of=array("I", entries.column(attrgetter("signature"))),
        stack_of=entries.stack_of,
        seq=entries.seq,
        created_ns=entries.created_ns,
        timeout_ms=array("q", entries.column(attrgetter("timeout_ms"))),
        is_completed=bytearray(entries.column(attrgetter("is_completed"))),
        is_p2p=bytearray(entries.column(attrgetter("is_p2p"))),
    )
    return Parsed(records=(recording,), problems=tuple(problems))


def _is_newer(version: str) -> bool:
    numbers = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", version)
    return bool(numbers) and (int(numbers[1]), int(numbers[2])) > NEWEST_KNOWN  # type: ignore[index]


def _read_entries(listed: Any, folded: Folded | None, entries: Entries, problems: list[str]) -> bool:
    """Whether all entries were there and could be read. A dump of nothing but damage is refused, not taken as empty."""
    if listed is None:
        problems.append("it was written without its entries: only the counters of each group are known")
        return False
    if not isinstance(listed, list):
        raise ParseError("the entries of the dump are no list")
    entries.add_folded(listed, folded) if folded else entries.add_all(listed)
    count = len(folded.rows if folded else listed)
    if entries.damaged and not entries.seq:
        raise ParseError(f"not a flight-recorder dump: none of its {entries.damaged} entries can be read")
    if entries.damaged:
        problems.append(f"{entries.damaged} of its {count} entries are damaged and were left out")
    if entries.repeated:
        problems.append(f"{entries.repeated} of its {count} entries repeat an earlier one and were left out")
    return not entries.damaged


def _groups(config: Any, problems: list[str]) -> dict[str, tuple[str, tuple[int, ...]]]:
    """`pg_config` of any version as name -> (description, ranks)."""
    groups, damaged = {}, 0
    for key, value in config.items() if isinstance(config, dict) else ():
        try:
            ranks = value["ranks"] if isinstance(value, dict) else value
            description = value.get("desc", "") if isinstance(value, dict) else ""
            groups[_key(key)] = (clean(description), _ranks(ranks))
        except DAMAGE:
            damaged += 1
    if damaged:
        problems.append(f"{damaged} process groups in pg_config are damaged and were left out")
    return groups


def _ranks(value: Any) -> tuple[int, ...]:
    """`[0, 1]` or the text "[0, 1]" (torch 2.4 and later)."""
    if isinstance(value, str):
        return _ranks_in(value)
    if not isinstance(value, list) or len(value) > _MAX_RANKS or not set(map(type, value)) <= {int}:
        raise ValueError("not a list of ranks")
    return tuple(sorted(set(value)))


@lru_cache(maxsize=16)
def _ranks_in(text: str) -> tuple[int, ...]:
    """Thousands of ranks write the same list of all ranks into their dumps."""
    if len(text) > 8 * _MAX_RANKS or not _RANKS.fullmatch(text):
        raise ValueError("not a list of ranks")
    return _ranks([int(number) for number in re.findall(r"\d+", text)])


def _statuses(value: Any, problems: list[str]) -> dict[str, GroupStatus]:
    statuses, damaged = {}, 0
    for key, counters in value.items() if isinstance(value, dict) else ():
        try:
            enqueued, started, completed = (_counter(counters[name]) for name in _COUNTERS)
            statuses[_key(key)] = GroupStatus(last_enqueued=enqueued, last_started=started, last_completed=completed)
        except DAMAGE:
            damaged += 1
    if damaged:
        problems.append(f"the counters of {damaged} process groups in pg_status are damaged and were left out")
    return statuses


def _counter(value: Any) -> int | None:
    """Integers in pickle, text in JSON; -1 is none yet."""
    if type(value) not in (int, str):
        raise TypeError("a counter is no integer")
    number = int(value)
    if not -_LIMIT < number < _LIMIT:
        raise ValueError("a counter is out of range")
    return number if number >= 0 else None


def _key(value: Any) -> str:
    """The name or number of a group; anything else may be nested beyond printing."""
    if type(value) not in (int, str):
        raise TypeError("the name of a group is no text")
    return clean(str(value))


def _short_text(value: Any) -> str | None:
    return clean(value, 64) if isinstance(value, str) and value else None
