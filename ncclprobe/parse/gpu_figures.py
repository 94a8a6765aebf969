"""Figures of a GPU as nvidia-smi writes them, in whatever layout.

In: cells by the names of `nvidia-smi --query-gpu` (`power.draw`: `71.30 W`). Out: a `GpuLook`.
"""

import re
from collections.abc import Mapping

from ncclprobe.model.bus_id import device_key
from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse.text import clean

# NVML's bits, with the names of `nvidia-smi -q`.
CLOCK_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}
_MAX_TEXT = 128
_NUMBER = re.compile(r"\[?(-?\d{1,15}(?:\.\d{1,9})?) ?(?:%|W|MHz|C|MiB)?\]?", re.ASCII)
_REASON = re.compile(r"clocks_(?:event|throttle)_reasons?[._](\w{1,40})")
# What makes a device useless, in any cell; a lone `Unknown Error` may be only a sensor that it lacks.
_LOST = re.compile(r"gpu is lost|err!|requires? reset|reset required|fallen off the bus", re.IGNORECASE)
_UNKNOWN_ERROR = re.compile(r"unknown error", re.IGNORECASE)
_FEW = 2


def look_of(
    cells: Mapping[str, str], *, pids: tuple[int, ...] = (), host: str | None = None, time_ns: int | None = None
) -> GpuLook:
    """One look at one device; a cell that holds no figure is None, and why is the `problem` if it is a fault."""
    power_limit_w = number(cells, "enforced.power.limit")
    return GpuLook(
        index=whole(cells, "index"),
        uuid=_given(cells, "uuid"),
        name=_given(cells, "name"),
        util_percent=percent(cells, "utilization.gpu"),
        memory_util_percent=percent(cells, "utilization.memory"),
        power_w=number(cells, "power.draw"),
        power_limit_w=power_limit_w if power_limit_w is not None else number(cells, "power.limit"),
        sm_clock_mhz=whole(cells, "clocks.sm"),
        pids=tuple(sorted(set(pids))),
        max_sm_clock_mhz=whole(cells, "clocks.max.sm"),
        bus_id=device_key(cells.get("pci.bus_id", "")),
        host=clean(host, _MAX_TEXT) if host else None,
        time_ns=time_ns,
        clock_reasons=_clock_reasons(cells),
        uncorrected_ecc=whole(cells, "ecc.errors.uncorrected.volatile.total"),
        remapping_failed=_yes(cells.get("remapped_rows.failure", "")),
        temperature_c=whole(cells, "temperature.gpu"),
        problem=problem_of(cells),
    )


def number(cells: Mapping[str, str], name: str) -> float | None:
    """The figure of a cell, its unit left out; None where there is none."""
    found = _NUMBER.fullmatch(cells.get(name, "").strip())
    return float(found[1]) if found else None


def whole(cells: Mapping[str, str], name: str) -> int | None:
    """The same, as a whole number that is not negative."""
    value = number(cells, name)
    return int(value) if value is not None and value >= 0 else None


def percent(cells: Mapping[str, str], name: str) -> int | None:
    """The same, from 0 to 100."""
    value = whole(cells, name)
    return value if value is not None and value <= 100 else None


def problem_of(cells: Mapping[str, str]) -> str:
    """Why a device cannot be read: one cell that says it is lost, or several that say `Unknown Error`."""
    for name, cell in cells.items():
        if _LOST.search(cell):
            return clean(f"{name}: {cell.strip(' []')}", _MAX_TEXT)
    unknown = [name for name, cell in cells.items() if _UNKNOWN_ERROR.search(cell)]
    if len(unknown) >= _FEW or "utilization.gpu" in unknown:
        return clean(f"{', '.join(unknown)}: Unknown Error", _MAX_TEXT)
    return ""


def reasons_in(mask: int) -> tuple[str, ...]:
    """Names of the bits of NVML's mask."""
    return tuple(name for bit, name in CLOCK_REASONS.items() if mask & bit)


def _clock_reasons(cells: Mapping[str, str]) -> tuple[str, ...]:
    names = []
    for key, cell in cells.items():
        found = _REASON.fullmatch(key)
        if found is None:
            continue
        if found[1] == "active" and re.fullmatch(r"0x[0-9a-fA-F]{1,16}", cell.strip()):
            return reasons_in(int(cell, 16))
        if cell.strip() == "Active":
            names.append(clean(found[1]))
    return tuple(names)


def _given(cells: Mapping[str, str], name: str) -> str:
    """Text of a cell; empty for `[N/A]` and its like."""
    cell = cells.get(name, "").strip()
    return (
        "" if cell.strip("[]") in ("N/A", "Unknown Error", "GPU is lost", "Not Supported") else clean(cell, _MAX_TEXT)
    )


def _yes(cell: str) -> bool | None:
    return {"yes": True, "1": True, "no": False, "0": False}.get(cell.strip().lower())
