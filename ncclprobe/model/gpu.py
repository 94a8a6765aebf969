"""State of one GPU at one look.

In: nothing. Out: `GpuLook`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLook:
    """NVML's figures; None where the device reports none. `util_percent`: share of time with a kernel resident.

    `index` is NVML's, None where a file names the device in another way; `uuid` and `name` are then empty or not.
    `bus_id` in lower case with domain: `0000:9b:00.0`. `moved_bytes`: over NVLink and PCIe, since the driver was loaded
    (compare two looks). `clock_reasons`: names of active throttle reasons, as `nvidia-smi -q` has them (`hw_slowdown`).
    `host` only where a file says it itself. `time_ns`: the host's own clock, read as if it were UTC where a file names
    no zone. `problem`: why the device could not be read (`GPU is lost`).
    """

    index: int | None
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
