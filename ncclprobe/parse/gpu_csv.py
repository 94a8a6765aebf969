"""GPU state in `nvidia-smi --query-gpu=... --format=csv`, with or without its header.

In: lines, and the command that made them, if it is known. Out: `GpuLook`s, one a row. Columns of other names, which
people add (`host`), count too; two hosts and many times may be in one file.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse.gpu_figures import look_of
from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.parsed import Parsed

_ALIASES = {
    "gpu": "index",
    "gpu_index": "index",
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_bus_id": "pci.bus_id",
    "clocks.current.sm": "clocks.sm",
    "clocks.current.graphics": "clocks.gr",
    "power.draw.instant": "power.draw",
    "power.draw.average": "power.draw",
    "hostname": "host",
    "node": "host",
    "nodename": "host",
    "time": "timestamp",
    "date": "timestamp",
}
_HEADER = re.compile(
    r"utilization\.gpu|power\.draw|pci\.bus_id|gpu_bus_id|\buuid\b|gpu_uuid|enforced\.power\.limit|clocks\.\w+|pstate"
)
_QUERY = re.compile(r"--query-(?:gpu|compute-apps)[= ]['\"]?(?P<columns>[\w.,]{1,2000})")
_UNIT = re.compile(r"\s*\[[^\]]{0,8}\]$")
_TIME = re.compile(r"\d{4}[/-]\d\d[/-]\d\d[ T]\d\d:\d\d:\d\d")
_BUS_ID = re.compile(r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")
# Cells whose unit or form tells the column, each at most once; else one cannot know which is which.
_FORMS = {
    "timestamp": _TIME,
    "uuid": re.compile(r"GPU-[0-9a-f-]{8,36}$"),
    "pci.bus_id": _BUS_ID,
    "utilization.gpu": re.compile(r"\d{1,3} %$"),
    "power.draw": re.compile(r"\d{1,5}(?:\.\d{1,3})? W$"),
    "pstate": re.compile(r"P\d{1,2}$"),
    "name": re.compile(r"(?:NVIDIA|Tesla|Quadro|GeForce) "),
}
_NO_FIGURE = re.compile(r"\[?(?:N/A|Not Supported|Unknown Error|GPU is lost|GPU requires reset)\]?$")
_AMBIGUOUS = "rows of nvidia-smi without a header: which column is which cannot be told; ask with --format=csv"


def is_header(line: str) -> bool:
    """Whether the line names columns of `--query-gpu`, at least two."""
    cells = [_UNIT.sub("", cell.strip()) for cell in line.split(",")]
    named = sum(_HEADER.fullmatch(cell) is not None for cell in cells)
    return len(cells) > 1 and (named > 1 or (named == 1 and bool({"index", "timestamp", "name", "pid"} & set(cells))))


def is_row(line: str) -> bool:
    """Whether it can be a row: cells, among them one with a unit or a form of nvidia-smi's."""
    cells = [cell.strip() for cell in line.split(",")]
    found = {name for cell in cells for name, form in _FORMS.items() if form.match(cell)}
    return len(cells) > 1 and bool(found & {"uuid", "pci.bus_id", "utilization.gpu", "power.draw"})


def columns_of(command: str) -> list[str] | None:
    """The columns that a command asks for: known also where the output has no header."""
    found = _QUERY.search(command)
    return _names(found["columns"]) if found else None


def parse(lines: Sequence[str], command: str = "", host: str | None = None) -> Parsed[GpuLook]:
    """Rows below a header; without one those that the command, or the form of their cells, explains."""
    columns = columns_of(command)
    pids, looks, ambiguous = defaultdict[str, list[int]](list), list[tuple[dict[str, str], int | None]](), 0
    clock, places = Clock(), Counter[tuple[str, str]]()
    for line in lines:
        if is_header(line):
            columns = _names(line)
            continue
        cells = _cells(line, columns)
        if cells is None:
            ambiguous += is_row(line)
        elif "pid" in cells:
            if re.fullmatch("[0-9]{1,9}", cells["pid"]):
                pids[cells.get("uuid") or cells.get("pci.bus_id", "")].append(int(cells["pid"]))
        else:
            time = cells.get("timestamp", "")
            look = cells.get("host", ""), time
            if time and "index" not in cells:  # nvidia-smi lists devices in order
                cells["index"] = str(places[look])
            places[look] += 1
            looks.append((cells, clock.read(time)))
    records = tuple(
        look_of(cells, pids=_pids_of(cells, pids), host=cells.get("host", host), time_ns=time_ns)
        for cells, time_ns in looks
    )
    return Parsed(records=records, problems=(_AMBIGUOUS,) if ambiguous else ())


def _names(header: str) -> list[str]:
    names = [
        _UNIT.sub("", cell.strip().lower()).replace("throttle_reasons", "event_reasons") for cell in header.split(",")
    ]
    return [_ALIASES.get(name, name) for name in names]


def _cells(line: str, columns: list[str] | None) -> dict[str, str] | None:
    """Cells by column; None when it is no row of these columns."""
    values = [value.strip() for value in line.split(",")]
    if columns is None:
        return _cells_by_form(values)
    if len(values) != len(columns) or len(values) < 2:
        return None
    cells: dict[str, str] = {}
    for name, value in zip(columns, values, strict=True):
        cells.setdefault(name, value)
    return cells


def _cells_by_form(values: list[str]) -> dict[str, str] | None:
    if len(values) < 2:
        return None
    cells: dict[str, str] = {}
    for place, value in enumerate(values):
        names = [name for name, form in _FORMS.items() if form.match(value)]
        if not names and place == 0 and re.fullmatch(r"\d{1,3}", value):
            names = ["index"]
        if names and names[0] in cells:
            return None
        if names:
            cells[names[0]] = value
    is_told = bool(cells.keys() & {"index", "uuid", "pci.bus_id"})
    return cells if is_told and cells.keys() & {"utilization.gpu", "power.draw"} else None


def _pids_of(cells: dict[str, str], pids: dict[str, list[int]]) -> tuple[int, ...]:
    """Of `--query-compute-apps` in the same file, which names a device by its uuid or its bus id."""
    found = [*pids.get(cells.get("uuid", "?"), ()), *pids.get(cells.get("pci.bus_id", "?"), ())]
    return tuple(found)
