"""The lines of NCCL that tell of a communicator's life.

In: an NCCL message. Out: a `CommEvent`.

The wording (src/init.cc): to 2.15 only `comm P rank R nranks N cudaDev D busId B - Init COMPLETE`; 2.16 adds commId,
2.18 nvmlDev and Init START, 2.21 the name of the function and for a split `parent P color C key K`. From 2.23 on a
split has no commId, since 2.24 a `splitCount` (`childCount` since 2.29.7). Abort START writes nRanks.
"""

import re

from ncclprobe.model.log import CommEvent

NEEDLES = ("- Init ", "- Abort ", "- Destroy ", "- Revoke ")

_LINE = re.compile(
    r"comm (?P<comm>0x[0-9a-f]{1,16}) rank (?P<rank>\d{1,8}) n[rR]anks (?P<size>\d{1,8})"
    r"(?: cudaDev (?P<device>\d{1,4}))?(?: nvmlDev -?\d{1,4})?(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    r"(?: parent (?P<parent>0x[0-9a-f]{1,16})(?: (?:split|child)Count (?P<split>\d{1,9}))?"
    r"(?: color (?P<color>-?\d{1,10}))?(?: key -?\d{1,10})?)?"
    r"(?: commId (?P<id>0x[0-9a-f]{1,16}))?.{0,80}?- ?"
    r"(?P<event>Init START|Init COMPLETE|Abort START|Abort COMPLETE|Destroy COMPLETE|Revoke START|Revoke COMPLETE)"
)
_REVOKE = "revoke"


def comm_event(message: str) -> CommEvent | None:
    """What the message tells, if it is such a line."""
    line = _LINE.search(message)
    if line is None:
        return None
    event = line["event"].lower().replace(" ", "-")
    return CommEvent(
        comm=line["comm"],
        event=_REVOKE if event.startswith(_REVOKE) else event,
        rank=int(line["rank"]),
        size=int(line["size"]),
        cuda_device=_number(line["device"]),
        bus_id=bus_id(line["bus"]) if line["bus"] else None,
        comm_id=f"0x{int(line['id'], 16):x}" if line["id"] else None,
        parent=line["parent"],
        color=_number(line["color"]),
        split=_number(line["split"]),
    )


def bus_id(digits: str) -> str:
    """`9b000` -> `0000:9b:00.0`: NCCL prints the hexadecimal digits of a PCI address without what separates them."""
    value = int(digits, 16)
    return f"{value >> 20:04x}:{value >> 12 & 0xFF:02x}:{value >> 4 & 0xFF:02x}.{value & 0xF:x}"


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
