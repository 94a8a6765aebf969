"""The manifest as JSON, and back.

In: a `Manifest`, or the text of one that anybody may have written. Out: stable JSON text, or a checked `Manifest`.

A later version with the same major format number may add keys (ignored here), leave out keys that have a default, and
use new kinds (such items are left out, with a gap). Everything else unexpected is refused with the name of its key.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable
from enum import Enum
from typing import TypeVar

from ncclprobe.bundle.paths import MANIFEST_NAME, path_problem, shown
from ncclprobe.bundle.problems import Problems
from ncclprobe.model.errors import BundleError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.manifest import MANIFEST_VERSION, HostOutcome, Manifest, Outcome, SourceOutcome

MAX_MANIFEST_BYTES = 64 << 20

_MAX_INT = (1 << 63) - 1
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ADVICE = "collect the bundle again; if it was edited, correct this key"

_Value = TypeVar("_Value")
_Word = TypeVar("_Word", bound=Enum)


def to_json(manifest: Manifest) -> str:
    """The manifest as sorted, indented ASCII JSON that ends in a newline; equal manifests give equal text."""
    return json.dumps(dataclasses.asdict(manifest), indent=1, sort_keys=True, allow_nan=False) + "\n"


def from_json(text: str) -> Manifest:
    """The manifest in `text`, without items of unknown kind; BundleError when it is not a manifest."""
    return read_manifest(text, Problems())


def read_manifest(text: str, problems: Problems) -> Manifest:
    """As `from_json`, and notes in `problems` which items were left out."""
    fields = _Fields(_loaded(text), "")
    version, tool_version = fields.text("schema_version"), fields.text("tool_version")
    if version.split(".")[0] != MANIFEST_VERSION:
        raise BundleError(
            f"this bundle has format {shown(version)}; this ncclprobe reads format {MANIFEST_VERSION}",
            f"analyse it with ncclprobe {tool_version}, which wrote it, or with a newer one",
        )
    return Manifest(
        schema_version=version,
        tool_version=tool_version,
        created_ns=fields.count("created_ns"),
        job=fields.optional("job", fields.text),
        interval_s=fields.optional("interval_s", fields.number),
        hosts=tuple(_host(host) for host in fields.objects("hosts")),
        items=_items(fields.objects("items"), tool_version, problems),
    )


def _loaded(text: str) -> object:
    advice = "collect the bundle again"
    if len(text) > MAX_MANIFEST_BYTES:
        raise BundleError(f"{MANIFEST_NAME} is longer than {MAX_MANIFEST_BYTES >> 20} MiB", advice)
    try:
        return json.loads(text, parse_int=_whole_number)
    except ValueError as error:
        raise BundleError(f"{MANIFEST_NAME} is not JSON: {error}", advice) from error
    except RecursionError as error:
        raise BundleError(f"{MANIFEST_NAME} is nested too deeply", advice) from error


def _whole_number(digits: str) -> int | float:
    # Converting thousands of digits takes quadratic time. No key of ours takes an infinite number: it is refused there.
    return int(digits) if len(digits) <= 20 else math.inf


class _Fields:
    """The keys of one JSON object: an answer has the type asked for, and a refusal names the key."""

    def __init__(self, value: object, where: str) -> None:
        self.where = where
        if not isinstance(value, dict):
            raise self.refusal("", "must be an object")
        self._values: dict[str, object] = value

    def refusal(self, key: str, why: str) -> BundleError:
        name = ".".join(filter(None, (self.where, key))) or "its content"
        return BundleError(f"{MANIFEST_NAME}: {name} {why}", _ADVICE)

    def optional(self, key: str, read: Callable[[str], _Value]) -> _Value | None:
        return None if self._values.get(key) is None else read(key)

    def text(self, key: str) -> str:
        value = self._required(key)
        if not isinstance(value, str):
            raise self.refusal(key, "must be text")
        # Lone surrogates are legal in JSON and would break the first print.
        return value.encode("utf-8", "backslashreplace").decode()

    def integer(self, key: str) -> int:
        value = self._required(key)
        if not isinstance(value, int) or isinstance(value, bool) or abs(value) > _MAX_INT:
            raise self.refusal(key, "must be a whole number of at most 63 bits")
        return value

    def count(self, key: str) -> int:
        value = self.integer(key)
        if value < 0:
            raise self.refusal(key, "must not be negative")
        return value

    def number(self, key: str) -> float:
        value = self._required(key)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < math.inf:
            raise self.refusal(key, "must be a number from 0 up")
        return float(value)

    def flag(self, key: str) -> bool:
        value = self._required(key)
        if not isinstance(value, bool):
            raise self.refusal(key, "must be true or false")
        return value

    def word(self, key: str, words: type[_Word]) -> _Word:
        try:
            return words(self.text(key))
        except ValueError:
            known = ", ".join(str(word.value) for word in words)
            raise self.refusal(key, f"must be one of {known}") from None

    def objects(self, key: str) -> "list[_Fields]":
        values = self._required(key)
        if not isinstance(values, list):
            raise self.refusal(key, "must be a list")
        prefix = ".".join(filter(None, (self.where, key)))
        return [_Fields(value, f"{prefix}[{index}]") for index, value in enumerate(values)]

    def _required(self, key: str) -> object:
        if key not in self._values:
            raise self.refusal(key, "is missing")
        return self._values[key]


def _host(fields: _Fields) -> HostOutcome:
    return HostOutcome(
        name=fields.text("name"),
        address=fields.text("address"),
        outcome=fields.word("outcome", Outcome),
        clock_offset_ns=fields.optional("clock_offset_ns", fields.integer),
        python=fields.optional("python", fields.text),
        sources=tuple(_source(source) for source in fields.optional("sources", fields.objects) or ()),
        gaps=tuple(_gap(gap) for gap in fields.optional("gaps", fields.objects) or ()),
    )


def _source(fields: _Fields) -> SourceOutcome:
    return SourceOutcome(
        name=fields.text("name"),
        outcome=fields.word("outcome", Outcome),
        seconds=fields.number("seconds"),
        longest_pause_s=fields.optional("longest_pause_s", fields.number),
    )


def _gap(fields: _Fields) -> Gap:
    return Gap(who=fields.text("who"), what=fields.text("what"), why=fields.text("why"), action=fields.text("action"))


def _items(items: list[_Fields], tool_version: str, problems: Problems) -> tuple[Artifact, ...]:
    known = {kind.value for kind in Kind}
    found: dict[str, Artifact] = {}
    for fields in items:
        path, kind = _item_path(fields), fields.text("kind")
        if path in found:
            raise fields.refusal("path", "is listed twice")
        if kind in known:
            found[path] = _artifact(fields, path)
            continue
        problems.add(
            who=fields.text("host"),
            what=path,
            why=f"this version does not know the kind {shown(kind)}",
            action=f"analyse the bundle with ncclprobe {tool_version} or newer",
        )
    return tuple(found.values())


def _item_path(fields: _Fields) -> str:
    path = fields.text("path")
    problem = path_problem(path)
    if problem is not None:
        raise fields.refusal("path", f"{problem}: {shown(path)}")
    return path


def _artifact(fields: _Fields, path: str) -> Artifact:
    sha256 = fields.optional("sha256", fields.text)
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise fields.refusal("sha256", "must be 64 hexadecimal digits")
    return Artifact(
        path=path,
        kind=fields.word("kind", Kind),
        host=fields.text("host"),
        origin=fields.text("origin"),
        rank=fields.optional("rank", fields.count),
        pid=fields.optional("pid", fields.count),
        look=fields.optional("look", fields.count),
        start_ns=fields.optional("start_ns", fields.count),
        end_ns=fields.optional("end_ns", fields.count),
        exit_status=fields.optional("exit_status", fields.integer),
        size_bytes=fields.optional("size_bytes", fields.count),
        sha256=sha256,
        truncated=fields.optional("truncated", fields.flag) or False,
    )
