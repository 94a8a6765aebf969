"""Lists of hosts as Slurm writes them.

In: `node[03-05,07],login1`. Out: the names.
"""

import re

_PART = re.compile(r"[^,\[\]]*(?:\[[\d,-]{1,2000}\][^,\[\]]*)?")
_MAX_LENGTH = 4_000


def expand(text: str, limit: int = 1_024) -> list[str]:
    """At most `limit` names, zeros in front kept; what is no list is one name."""
    hosts: list[str] = []
    for match in _PART.finditer(text[:_MAX_LENGTH]):
        if match[0]:
            hosts.extend(_one(match[0], limit - len(hosts)))
    return hosts[:limit]


def _one(part: str, limit: int) -> list[str]:
    match = re.fullmatch(r"([^\[\]]*)\[([\d,-]+)\]([^\[\]]*)", part)
    if match is None:
        return [part]
    head, numbers, tail = match.groups()
    names: list[str] = []
    for item in numbers.split(","):
        first, _, last = item.partition("-")
        if first.isdigit() and len(first) < 10 and (last or first).isdigit() and len(last) < 10:
            span = range(int(first), min(int(last or first), int(first) + limit) + 1)
            names.extend(f"{head}{number:0{len(first)}d}{tail}" for number in span)
    return names
