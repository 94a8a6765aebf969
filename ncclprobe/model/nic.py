"""State and error counters of a network port at one look.

In: nothing. Out: `PortLook`.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class PortLook:
    """`device` and `port` as the kernel names them (`mlx5_0`, 1; `eth0`, None). `rate_gbps` None where unknown.

    `state` in the kernel's words without the number: `ACTIVE`, `DOWN`, `up`. `counters` by their sysfs names. `bus_id`:
    the adapter's, as in `GpuLook`.
    """

    device: str
    port: int | None
    state: str
    physical_state: str = ""
    rate_gbps: float | None = None
    time_ns: int | None = None
    counters: dict[str, int] = field(default_factory=dict)
    bus_id: str | None = None
