"""State of network ports as command-line tools print it.

In: text, also of several commands one after the other with their prompts. Out: `PortLook`s.
"""

import re
from dataclasses import dataclass, field

from ncclprobe.model.nic import PortLook
from ncclprobe.parse.text import clean

MAX_PORTS = 10_000
_MAX_LINE = 1_000
_MAX_COUNTERS = 500
_MAX_HEAD_LINES = 400

_NAME = r"[\w.@-]{1,64}"
_IBSTAT = re.compile(rf"CA '(?P<device>{_NAME})'")
_IBSTAT_PORT = re.compile(r"\s+Port (?P<port>\d{1,3}):\s*$")
_DEVINFO = re.compile(rf"hca_id:\s*(?P<device>{_NAME})")
_DEVINFO_PORT = re.compile(r"\s+port:\s*(?P<port>\d{1,3})\s*$")
_RDMA = re.compile(
    rf"(?:link )?(?:\d{{1,4}}/\d{{1,4}}: )?(?P<device>{_NAME})/(?P<port>\d{{1,3}}):? .{{0,40}}?"
    r"state (?P<state>\w{1,20})(?: physical_state (?P<physical>\w{1,20}))?"
)
_IBDEV = re.compile(rf"(?P<device>{_NAME}) port (?P<port>\d{{1,3}}) ==> {_NAME} \((?P<state>\w{{1,20}})\)")
_IP_LINK = re.compile(
    rf"\d{{1,5}}: (?P<device>[^\s:@]{{1,64}})(?:@{_NAME})?: <(?P<flags>[^>]{{0,200}})> "
    r".{0,120}?\bstate (?P<state>\w{1,20})"
)
_IP_COLUMNS = re.compile(r"\s+(?P<way>[RT]X)(?: errors)?:\s+(?P<columns>\w[\w\s]{0,120})$")
_SYSFS = re.compile(
    rf"/sys/class/infiniband/(?P<device>{_NAME})/ports/(?P<port>\d{{1,3}})/"
    r"(?:(?:hw_)?counters/(?P<counter>\w{1,64})|(?P<figure>state|phys_state|rate)):\s*(?P<value>.{0,80})$"
)
_ETHTOOL = re.compile(rf"[^\n]{{0,120}}?\bethtool -S (?P<device>{_NAME})")
_COUNTER = re.compile(r"\s+(?P<counter>\w[\w.\[\] -]{0,62}\w):\s*(?P<value>\d{1,20})\s*$")
_FIGURE = re.compile(r"\s+(?P<figure>State|Physical state|Rate|state|phys_state|active_speed):\s*(?P<value>\S.{0,80})$")
_NUMBER_BEFORE = re.compile(r"^\d{1,3}: *")
_IP_NAMES = {"errors": "errors", "dropped": "dropped", "missed": "missed_errors", "carrier": "carrier_errors"}


@dataclass(slots=True)
class _Port:
    device: str
    port: int | None = None
    state: str = ""
    physical_state: str = ""
    rate_gbps: float | None = None
    counters: dict[str, int] = field(default_factory=dict)


def state_of(text: str) -> str:
    """`4: ACTIVE`, `PORT_ACTIVE (4)`, `Active` -> `ACTIVE`; of an interface, `UP` and `up` -> `up`."""
    word = _NUMBER_BEFORE.sub("", text).split("(")[0].strip().removeprefix("PORT_")
    if word.lower() in ("active", "down", "init", "armed", "active_defer") and not text.islower():
        return word.upper()
    return clean(word, 32)


def is_nic_text(text: str) -> bool:
    """Whether most lines are of one of the tools."""
    lines = [line for line in text.splitlines()[:_MAX_HEAD_LINES] if line.strip()]
    heads = (_IBSTAT, _DEVINFO, _IP_LINK, _SYSFS, _IBDEV, _RDMA)
    begins = [any(head.match(line) for head in heads) or _ETHTOOL.match(line) is not None for line in lines]
    below = sum(line[:1] in (" ", "\t") for line in lines)
    return any(begins) and 2 * (sum(begins) + below) > len(lines)


def ports_in(text: str) -> list[PortLook]:
    """Every port; what the tools print of anything else is skipped."""
    reader = _Reader()
    for line in text.splitlines():
        reader.feed(line[:_MAX_LINE])
    return [
        PortLook(
            device=clean(port.device, 64),
            port=port.port,
            state=port.state,
            physical_state=port.physical_state,
            rate_gbps=port.rate_gbps,
            counters=port.counters,
        )
        for port in reader.ports
        if port.state or port.counters
    ]


class _Reader:
    """`_device` is of the block that lines belong to, `_columns` what the next line of numbers counts."""

    def __init__(self) -> None:
        self.ports: list[_Port] = []
        self._by_name: dict[tuple[str, int | None], _Port] = {}
        self._device = ""
        self._current: _Port | None = None
        self._columns: list[str] = []

    def feed(self, line: str) -> None:
        """One line."""
        if found := _SYSFS.match(line):
            port = self._known(found["device"], int(found["port"]))
            if found["counter"]:
                _count(port, found["counter"], found["value"].strip())
            else:
                _set(port, found["figure"], found["value"])
        elif found := _IBSTAT.match(line) or _DEVINFO.match(line):
            self._device, self._current = found["device"], None
        elif self._device and (found := _IBSTAT_PORT.match(line) or _DEVINFO_PORT.match(line)):
            self._begin(self._device, int(found["port"]))
        elif found := _IP_LINK.match(line):
            port = self._begin(found["device"], None)
            port.state = "up" if "LOWER_UP" in found["flags"].split(",") else found["state"].lower()
        elif found := _IBDEV.match(line) or _RDMA.match(line):
            self._summary(found)
        elif found := _ETHTOOL.match(line):
            self._begin(found["device"], None)
        elif self._current is not None:
            self._detail(self._current, line)

    def _detail(self, port: _Port, line: str) -> None:
        if found := _FIGURE.match(line):
            _set(port, found["figure"], found["value"])
        elif found := _IP_COLUMNS.match(line):
            names = [_IP_NAMES.get(column, "") for column in found["columns"].split()]
            self._columns = [f"{found['way'].lower()}_{name}" if name else "" for name in names]
        elif self._columns:
            for name, value in zip(self._columns, line.split(), strict=False):
                _count(port, name, value)
            self._columns = []
        elif found := _COUNTER.match(line):
            _count(port, found["counter"], found["value"])

    def _begin(self, device: str, number: int | None) -> _Port:
        self._columns = []
        self._current = port = _Port(device, number)
        if len(self.ports) < MAX_PORTS:
            self.ports.append(port)
        return port

    def _known(self, device: str, number: int) -> _Port:
        """One line a figure: lines of one port belong together."""
        key = (device, number)
        if key not in self._by_name:
            self._by_name[key] = self._begin(device, number)
            self._current = None
        return self._by_name[key]

    def _summary(self, found: re.Match[str]) -> None:
        port = self._begin(found["device"], int(found["port"]))
        port.state = {"Up": "ACTIVE", "Down": "DOWN"}.get(found["state"], state_of(found["state"]))
        port.physical_state = found.groupdict().get("physical") or ""
        self._current = None


def _set(port: _Port, figure: str, value: str) -> None:
    if figure.lower() == "state":
        port.state = state_of(value)
    elif figure in ("Physical state", "phys_state"):
        port.physical_state = state_of(value)
    elif rate := re.match(r"(\d{1,5}(?:\.\d{1,3})?)(?: Gb/s| ?Gbps|\s*$)", value):
        port.rate_gbps = float(rate[1])


def _count(port: _Port, name: str, value: str) -> None:
    if name and value.isdecimal() and len(value) <= 20 and len(port.counters) < _MAX_COUNTERS:
        port.counters[clean(name, 64)] = min(int(value), (1 << 64) - 1)
