"""GPU state in the columns of `nvidia-smi dmon` and `pmon`.

In: lines; those of `#` name the columns, which differ by option and driver. Out: `GpuLook`s, one a device and sample.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse.gpu_figures import look_of
from ncclprobe.parse.log.clock import Clock

_COLUMNS = {
    "gpu": "index",
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "temp": "temperature.gpu",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "pclk": "clocks.sm",
    "dbecc": "ecc.errors.uncorrected.volatile.total",
}
_HEADER = re.compile(r"#\s*(?:Date\s+Time\s+|Time\s+)?gpu\s+\S")
_UNITS = re.compile(r"#\s*(?:YYYYMMDD\s+)?(?:HH:MM:SS\s+)?Idx\s")
_ROW = re.compile(r"\s*(?:\d{8}\s+)?(?:\d\d:\d\d:\d\d\s+)?\d{1,3}(?:\s+\S+){2,40}\s*$")


def is_header(line: str) -> bool:
    """Whether the line names the columns, or their units."""
    return _HEADER.match(line) is not None or _UNITS.match(line) is not None


def is_row(line: str) -> bool:
    """Whether it can be a row; only below a header it is one."""
    return _ROW.match(line) is not None


def parse(lines: Iterable[str], host: str | None = None) -> tuple[GpuLook, ...]:
    """Rows below a header; of pmon, which has a row a process, those of one device and sample are one look."""
    columns: list[str] = []
    clock, looks = Clock(), list[GpuLook]()
    for line in lines:
        if _HEADER.match(line):
            columns = line.lstrip("# ").lower().split()
        elif columns and not line.startswith("#"):
            cells = dict(zip(columns, line.split(), strict=False))
            if not re.fullmatch("[0-9]{1,3}", cells.get("gpu", "")):
                continue
            look = _look(cells, clock, host)
            if "pid" in cells and looks and _is_same_sample(looks[-1], look):
                looks[-1] = _merged(looks[-1], look)
            else:
                looks.append(look)
    return tuple(looks)


def _look(cells: dict[str, str], clock: Clock, host: str | None) -> GpuLook:
    pid, date = cells.get("pid", ""), cells.get("date", "")
    day = f"{date[:4]}/{date[4:6]}/{date[6:]}" if re.fullmatch("[0-9]{8}", date) else ""
    figures = {_COLUMNS[name]: cell for name, cell in cells.items() if name in _COLUMNS}
    time_ns = clock.read(f"{day} {cells.get('time', '')}") if day else None
    return look_of(figures, pids=(int(pid),) if re.fullmatch("[0-9]{1,9}", pid) else (), host=host, time_ns=time_ns)


def _is_same_sample(last: GpuLook, look: GpuLook) -> bool:
    return last.index == look.index and last.time_ns == look.time_ns and not set(last.pids) & set(look.pids)


def _merged(last: GpuLook, look: GpuLook) -> GpuLook:
    """The busiest process: their shares of the time overlap, so a sum would say too much."""
    return replace(
        last,
        pids=tuple(sorted({*last.pids, *look.pids})),
        util_percent=_highest((last.util_percent, look.util_percent)),
        memory_util_percent=_highest((last.memory_util_percent, look.memory_util_percent)),
    )


def _highest(values: Sequence[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)
