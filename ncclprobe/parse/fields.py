"""Fields of our own JSON, read as if a stranger had written it.

In: a dict from `json.loads`. Out: values of the wanted type; ValueError that names the key otherwise.
"""

import json
from collections.abc import Callable
from typing import Any, TypeVar

from ncclprobe.model.errors import ParseError
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

Record = TypeVar("Record")
DAMAGE = (ValueError, TypeError, KeyError, AttributeError)

_LIMIT = 2**62
_MAX_RECORDS = 100_000


def load_json(data: bytes, what: str) -> Any:
    """The document; ParseError that names `what` when it is none, or cut off."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ParseError(f"not {what}, or cut off: {clean(str(error), 120)}") from None


def records(data: bytes, key: str, read: Callable[[dict[str, Any]], Record]) -> Parsed[Record]:
    """Every element of the list under `key` that `read` accepts; one problem for all that it does not."""
    document = load_json(data, "JSON")
    elements = document.get(key) if isinstance(document, dict) else None
    if not isinstance(elements, list):
        raise ParseError(f"no list under {key!r}")
    if len(elements) > _MAX_RECORDS:
        raise ParseError(f"refused: {len(elements)} {key} are more than any host has")
    return read_all(elements, key, read)


def read_all(elements: list[Any], what: str, read: Callable[[Any], Record]) -> Parsed[Record]:
    """Every element that `read` accepts; one problem for all that it does not."""
    kept, damage = [], []
    for number, element in enumerate(elements):
        try:
            kept.append(read(element))
        except DAMAGE as error:
            damage.append(f"number {number}: {type(error).__name__}: {clean(str(error), 80)}")
    if not damage:
        return Parsed(records=tuple(kept))
    problem = f"{len(damage)} of {len(elements)} {what} are damaged and were left out, the first being {damage[0]}"
    return Parsed(records=tuple(kept), problems=(problem,))


def text(fields: dict[str, Any], key: str, limit: int = 4_096) -> str:
    """Text fit to show, cut at `limit` characters; empty where the key is absent or null."""
    value = fields.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    return clean(value, limit)


def whole(fields: dict[str, Any], key: str) -> int | None:
    """A non-negative integer, or None where the key is absent or null."""
    value = fields.get(key)
    return None if value is None else _whole(value, key)


def required(fields: dict[str, Any], key: str) -> int:
    """A non-negative integer that must be there."""
    return _whole(fields.get(key), key)


def wholes(fields: dict[str, Any], key: str) -> tuple[int, ...]:
    """Non-negative integers; none where the key is absent or null."""
    return tuple(_whole(value, key) for value in fields.get(key) or ())


def number(fields: dict[str, Any], key: str) -> float | None:
    """A finite number, or None where the key is absent or null."""
    value = fields.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) < _LIMIT:
        raise ValueError(f"{key} is not a number")
    return float(value)


def flag(fields: dict[str, Any], key: str) -> bool | None:
    """True or false, or None where the key is absent or anything else."""
    value = fields.get(key)
    return value if isinstance(value, bool) else None


def _whole(value: Any, key: str) -> int:
    if type(value) is not int or not 0 <= value < _LIMIT:
        raise ValueError(f"{key} is not a whole number")
    return value
