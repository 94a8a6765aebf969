"""GPU state in the table that `nvidia-smi` prints, in the layouts of drivers 418 to 580.

In: lines. Out: `GpuLook`s, with the pids below `Processes`. Several tables may follow one another (`watch`, `-l`).
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse.gpu_figures import look_of
from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.text import clean

_BANNER = re.compile(r"\|\s*NVIDIA-SMI \d")
_DATE = re.compile(r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\s*$")
_FIRST = re.compile(
    r"\|\s*(?P<index>\d{1,3})\s+(?P<name>[^|]{1,60}?)\s*(?:\b(?:On|Off|N/A))?\s*\|\s*"
    r"(?P<bus_id>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s[^|]{0,20}\|\s*(?P<ecc>[^|]{1,40}?)\s*\|"
)
_SECOND = re.compile(
    r"\|\s*(?P<fan>\S{1,8})\s+(?P<temperature>\S{1,8})\s+(?P<state>\S{1,8})\s+(?P<power>[^|/]{1,12}?|N/A)\s*/\s*"
    r"(?P<limit>[^|]{1,12}?)\s*\|\s*(?P<memory>[^|]{1,40}?)\s*\|\s*(?P<use>[^|]{1,40}?)\s*\|"
)
_LOST_ROW = re.compile(r"\|[^|]{0,60}\|?[^|]{0,60}(?:ERR!|GPU is lost|Unknown Error)")
_PROCESS = re.compile(
    r"\|\s*(?P<index>\d{1,3})\s+(?:(?:N/A|\d{1,3})\s+(?:N/A|\d{1,3})\s+)?(?P<pid>\d{1,9})\s+(?P<type>[CGM+]{1,3})\s"
)
# Printed instead of a table, or before it, when a device is gone.
_MESSAGE = re.compile(
    r"Unable to determine the device handle for (?:gpu|GPU) ?(?P<bus_id>[0-9A-Fa-f:]{4,20}\.[0-7]): (?P<why>.{1,80})"
    r"|(?:GPU ?|\[?)(?P<other>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\]?:? (?P<what>GPU is lost.{0,60})"
)


def is_table_line(line: str) -> bool:
    """Whether the line is of such a table, or the message instead of one."""
    return any(form.match(line) for form in (_BANNER, _FIRST, _SECOND, _PROCESS)) or _MESSAGE.search(line) is not None


def parse(lines: Iterable[str], host: str | None = None) -> tuple[GpuLook, ...]:
    """Every device of every table; devices that nvidia-smi cannot open have a `problem` and nothing else."""
    reader = _Reader(host)
    for line in lines:
        reader.feed(line)
    return tuple(reader.looks)


class _Reader:
    """`_row` is the first line of a device, which the second completes; `_begin` is where this table's looks begin."""

    def __init__(self, host: str | None) -> None:
        self.looks: list[GpuLook] = []
        self._host = host
        self._clock = Clock()
        self._time_ns: int | None = None
        self._row: dict[str, str] | None = None
        self._begin = 0

    def feed(self, line: str) -> None:
        """One line."""
        if found := _MESSAGE.search(line):
            self._add({"pci.bus_id": found["bus_id"] or found["other"]}, found["why"] or found["what"])
        elif _BANNER.match(line):
            self._begin = len(self.looks)
        elif _DATE.match(line):
            self._time_ns = self._clock.read(line)
        elif found := _FIRST.match(line):
            self._row = {
                "index": found["index"],
                "name": found["name"].strip().removesuffix("..."),
                "pci.bus_id": found["bus_id"],
                "ecc.errors.uncorrected.volatile.total": found["ecc"],
            }
        elif self._row is not None and line.startswith("|"):
            self._complete(self._row, line)
        elif found := _PROCESS.match(line):
            self._process(int(found["index"]), int(found["pid"]))

    def _complete(self, row: dict[str, str], line: str) -> None:
        found = _SECOND.match(line)
        self._row = None
        if found is None:
            self._add(row, "its row reads ERR!" if _LOST_ROW.match(line) else "")
            return
        use, _, _ = found["use"].partition("%")
        cells = {
            **row,
            "temperature.gpu": found["temperature"],
            "power.draw": found["power"],
            "power.limit": found["limit"],
            "fan": found["fan"],
            "pstate": found["state"],
            "memory.used": found["memory"],
            "utilization.gpu": use if "%" in found["use"] else found["use"].split("  ")[0],
        }
        self._add(cells, "")

    def _add(self, cells: dict[str, str], problem: str) -> None:
        look = look_of(cells, host=self._host, time_ns=self._time_ns)
        self.looks.append(replace(look, problem=clean(problem.strip())) if problem else look)

    def _process(self, index: int, pid: int) -> None:
        for place in range(self._begin, len(self.looks)):
            look = self.looks[place]
            if look.index == index:
                self.looks[place] = replace(look, pids=tuple(sorted({*look.pids, pid})))
