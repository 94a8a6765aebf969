"""State of one GPU at one look.

In: nothing. Out: `GpuLook`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLook:
    """NVML's figures; None where the device reports none. `util_percent`: share of time with a kernel resident.

    `bus_id` in lower case with domain: `0000:9b:00.0`. `moved_bytes`: over NVLink and PCIe, since the driver was loaded
    (compare two looks). `clock_reasons`: names of active throttle reasons. `host` only where a file says it itself.
    `problem`: why the device could not be read (`GPU is lost`).
    """

    index: int
    uuid: str
    name: str
    util_percent: int | None
    memory_util_percent: int | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    pids: tuple[int, ...] = ()
    max_sm_clock_mhz: int | None = None
    bus_id: str | None = None
    host: str | None = None
    time_ns: int | None = None
    clock_reasons: tuple[str, ...] = ()
    uncorrected_ecc: int | None = None
    remapping_failed: bool | None = None
    moved_bytes: int | None = None
    temperature_c: int | None = None
    problem: str = ""
