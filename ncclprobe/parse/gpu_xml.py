"""GPU state in `nvidia-smi -q -x`.

In: its XML, also several documents one after the other, or one that is cut off. Out: `GpuLook`s.

Only what stands between `<nvidia_smi_log>` and its end is given to the XML parser: no document type, so no entities.
"""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

from ncclprobe.model.errors import ParseError
from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse.gpu_figures import look_of
from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

_MAX_BYTES = 16 << 20
_PIECE_BYTES = 4_096
_START, _END = b"<nvidia_smi_log>", b"</nvidia_smi_log>"
# Cell -> paths, of which the first that is there counts; a driver has one or the other.
_CELLS = {
    "uuid": ("uuid",),
    "name": ("product_name",),
    "pci.bus_id": ("pci/pci_bus_id",),
    "utilization.gpu": ("utilization/gpu_util",),
    "utilization.memory": ("utilization/memory_util",),
    "power.draw": tuple(
        f"{readings}/{draw}"
        for readings in ("gpu_power_readings", "power_readings")
        for draw in ("power_draw", "instant_power_draw", "average_power_draw")
    ),
    "enforced.power.limit": tuple(
        f"{readings}/{limit}"
        for readings in ("gpu_power_readings", "power_readings")
        for limit in ("enforced_power_limit", "current_power_limit", "power_limit")
    ),
    "clocks.sm": ("clocks/sm_clock",),
    "clocks.max.sm": ("max_clocks/sm_clock",),
    "temperature.gpu": ("temperature/gpu_temp",),
    "remapped_rows.failure": ("remapped_rows/remapped_row_failure",),
}
_ECC = (
    "ecc_errors/volatile/dram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable",
    "ecc_errors/volatile/sram_uncorrectable_parity",
    "ecc_errors/volatile/sram_uncorrectable_secded",
    "ecc_errors/volatile/double_bit/total",
)
_REASONS = ("clocks_event_reasons", "clocks_throttle_reasons")


def parse(data: bytes) -> Parsed[GpuLook]:
    """The devices of all documents; a problem where one is damaged; ParseError for what may not be read."""
    if len(data) > _MAX_BYTES:
        raise ParseError(f"refused: XML of {len(data)} bytes is more than nvidia-smi writes")
    if b"<!ENTITY" in data:
        raise ParseError("refused: the XML defines entities, which nvidia-smi never does")
    looks: list[GpuLook] = []
    problems: list[str] = []
    for document in _documents(data):
        found, problem = _read(document)
        looks += found
        problems += [problem] if problem else []
    return Parsed(records=tuple(looks), problems=tuple(problems[:1]))


def _documents(data: bytes) -> Iterator[bytes]:
    starts = [found.start() for found in re.finditer(re.escape(_START), data)]
    for start, following in zip(starts, [*starts[1:], len(data)], strict=True):
        end = data.find(_END, start, following)
        yield data[start : end + len(_END) if end >= 0 else following]


def _read(document: bytes) -> tuple[list[GpuLook], str]:
    """The devices before a damaged place, and what is wrong there."""
    looks: list[GpuLook] = []
    time_ns, attached = None, ""
    try:
        for element in _elements(document):
            if element.tag == "timestamp":
                time_ns = Clock().read(element.text or "")
            elif element.tag == "attached_gpus":
                attached = (element.text or "").strip()
            elif element.tag == "gpu" and element.get("id") is not None:
                looks.append(_look(element, len(looks), time_ns))
                element.clear()
    except ElementTree.ParseError as error:
        return looks, f"the XML is cut off or damaged: {clean(str(error), 80)}"
    if attached.isdecimal() and attached != str(len(looks)):  # asked with -i: then the place is not the index
        looks = [replace(look, index=None) for look in looks]
    return looks, ""


def _elements(document: bytes) -> Iterator[ElementTree.Element]:
    parser: Any = ElementTree.XMLPullParser(("end",))
    for start in range(0, len(document), _PIECE_BYTES):
        parser.feed(document[start : start + _PIECE_BYTES])
        for _, element in parser.read_events():
            yield element
    parser.close()


def _look(gpu: ElementTree.Element, number: int, time_ns: int | None) -> GpuLook:
    """`number` is the place in the document: `minor_number` is that of /dev, which can be another."""
    cells = {cell: _first(gpu, paths) for cell, paths in _CELLS.items()}
    cells = {"index": str(number), **cells, "pci.bus_id": cells["pci.bus_id"] or gpu.get("id", "")}
    counts = [int(text) for text in (_first(gpu, (path,)) for path in _ECC) if re.fullmatch("[0-9]{1,15}", text)]
    if counts:
        cells["ecc.errors.uncorrected.volatile.total"] = str(sum(counts))
    for reasons in _REASONS:
        for reason in gpu.iterfind(f"{reasons}/*"):
            cells[reason.tag] = reason.text or ""
    texts = (process.findtext("pid", "") for process in gpu.iterfind("processes/process_info"))
    return look_of(cells, pids=tuple(int(text) for text in texts if re.fullmatch("[0-9]{1,9}", text)), time_ns=time_ns)


def _first(gpu: ElementTree.Element, paths: tuple[str, ...]) -> str:
    """The first that holds a figure or a name, else the first that is there: a driver may have both, one `N/A`."""
    texts = [text.strip() for path in paths if (text := gpu.findtext(path))]
    return next((text for text in texts if text != "N/A"), texts[0] if texts else "")
