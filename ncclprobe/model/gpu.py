"""State of one GPU at one look.

In: nothing. Out: `GpuLook`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLook:
    """NVML's figures; None where the device reports none. `util_percent`: share of time with a kernel resident."""

    index: int
    uuid: str
    name: str
    util_percent: int | None
    memory_util_percent: int | None
    power_w: float | None
    power_limit_w: float | None
    sm_clock_mhz: int | None
    pids: tuple[int, ...] = ()
