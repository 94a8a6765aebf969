"""State and counters of network ports, in any form in which people keep them.

In: JSON of the probe's `nic` source, or the text of `ibstat`, `ibv_devinfo`, `rdma link`, `ibdev2netdev`, `ip -s link`,
`ethtool -S` behind its prompt, and `grep . /sys/class/infiniband/...`. Out: `PortLook`s.
"""

import re
from typing import Any

from ncclprobe.model.bus_id import device_key
from ncclprobe.model.errors import ParseError
from ncclprobe.model.nic import PortLook
from ncclprobe.parse import fields, nic_text
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean, decoded

_JSON = re.compile(rb"\s*\{\s*\"ports\"")
_MAX_COUNTERS = 500
_RATE = re.compile(r"(\d{1,5}(?:\.\d{1,3})?) ?(?:Gb/sec|$)")


def is_nic(head: bytes) -> bool:
    """Whether most of a file that begins so is state of network ports."""
    return _JSON.match(head) is not None or (
        b"\0" not in head and nic_text.is_nic_text(head.decode("utf-8", "replace"))
    )


def parse(data: bytes) -> Parsed[PortLook]:
    """All ports; ParseError when there is none, or the JSON is damaged."""
    if _JSON.match(data):
        return fields.records(data, "ports", _port)
    ports = nic_text.ports_in(decoded(data, "state of network ports"))
    if not ports:
        raise ParseError("nothing in it is the state of a network port")
    return Parsed(records=tuple(ports))


def _port(item: dict[str, Any]) -> PortLook:
    counters = item.get("counters") or {}
    if not isinstance(counters, dict) or len(counters) > _MAX_COUNTERS:
        raise ValueError("counters are not a table of numbers")
    rate = _RATE.match(fields.text(item, "rate", 64))
    return PortLook(
        device=clean(fields.text(item, "device", 64)),
        port=fields.whole(item, "port"),
        state=nic_text.state_of(fields.text(item, "state", 64)),
        physical_state=nic_text.state_of(fields.text(item, "physical_state", 64)),
        rate_gbps=float(rate[1]) if rate else None,
        time_ns=fields.whole(item, "time_ns"),
        counters={clean(name, 64): _counter(value) for name, value in counters.items()},
        bus_id=device_key(fields.text(item, "bus_id", 32)),
    )


def _counter(value: Any) -> int:
    """Of 64 bits: all of them set is a real value, where the adapter does not know."""
    if type(value) is not int or not 0 <= value < 1 << 64:
        raise ValueError("a counter is not a whole number")
    return value
