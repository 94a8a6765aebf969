"""A host's checkup, as the probe writes it.

In: its JSON, `{"checks": [...]}` and `{"ranks": [...]}`. Out: `Check`s and `RankSettings`.
"""

from typing import Any

from ncclprobe.model.checkup import Check, CheckState, Place, RankSettings, Version
from ncclprobe.parse import fields
from ncclprobe.parse.parsed import Parsed

_MAX_VARIABLES = 2_000


def parse(data: bytes) -> Parsed[Check | RankSettings]:
    """All that is whole; ParseError when the JSON is damaged, a problem for damaged elements."""
    document = fields.load_json(data, "JSON")
    document = document if isinstance(document, dict) else {}
    checks = fields.read_all(_list(document, "checks"), "checks", _check)
    ranks = fields.read_all(_list(document, "ranks"), "ranks", _settings)
    return Parsed(records=(*checks.records, *ranks.records), problems=(*checks.problems, *ranks.problems))


def _list(document: dict[str, Any], key: str) -> list[Any]:
    found = document.get(key)
    return found if isinstance(found, list) else []


def _check(item: dict[str, Any]) -> Check:
    return Check(
        name=fields.text(item, "name", 64),
        state=CheckState(item.get("state")),
        what=fields.text(item, "what", 600),
        action=fields.text(item, "action", 400),
        ranks=fields.wholes(item, "ranks"),
    )


def _settings(item: dict[str, Any]) -> RankSettings:
    variables = item.get("variables") or {}
    if len(variables) > _MAX_VARIABLES:
        raise ValueError("more variables than any process has")
    return RankSettings(
        host=fields.text(item, "host"),
        rank=fields.whole(item, "rank"),
        pid=fields.whole(item, "pid"),
        command=fields.text(item, "command"),
        variables={name[:200]: fields.text(variables, name) for name in variables},
        torch=_version(item, "torch"),
        nccl=_version(item, "nccl"),
        dumps=_place(item.get("dumps")),
        pipes=_place(item.get("pipes")),
    )


def _version(item: dict[str, Any], key: str) -> Version | None:
    parts = fields.wholes(item, key)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else None


def _place(item: dict[str, Any] | None) -> Place | None:
    if item is None:
        return None
    return Place(
        path=fields.text(item, "path"),
        is_there=fields.flag(item, "is_there") is True,
        is_writable=fields.flag(item, "is_writable") is True,
        file_system=fields.text(item, "file_system", 64) or None,
        free_bytes=fields.whole(item, "free_bytes"),
    )
