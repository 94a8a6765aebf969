"""GPU state, as the probe's `gpu` source writes it.

In: its JSON, `{"gpus": [...]}`. Out: `GpuLook`s.
"""

from typing import Any

from ncclprobe.model.bus_id import device_key
from ncclprobe.model.gpu import GpuLook
from ncclprobe.parse import fields
from ncclprobe.parse.gpu_figures import reasons_in
from ncclprobe.parse.parsed import Parsed


def parse(data: bytes) -> Parsed[GpuLook]:
    """All devices; ParseError when the JSON is damaged, a problem for damaged devices."""
    return fields.records(data, "gpus", _gpu)


def _gpu(item: dict[str, Any]) -> GpuLook:
    return GpuLook(
        index=fields.required(item, "index"),
        uuid=fields.text(item, "uuid", 128),
        name=fields.text(item, "name", 128),
        util_percent=fields.whole(item, "util_percent"),
        memory_util_percent=fields.whole(item, "memory_util_percent"),
        power_w=fields.number(item, "power_w"),
        power_limit_w=fields.number(item, "power_limit_w"),
        sm_clock_mhz=fields.whole(item, "sm_clock_mhz"),
        pids=fields.wholes(item, "pids"),
        max_sm_clock_mhz=fields.whole(item, "max_sm_clock_mhz"),
        bus_id=device_key(fields.text(item, "bus_id", 32)),
        time_ns=fields.whole(item, "time_ns"),
        clock_reasons=reasons_in(fields.whole(item, "clock_reasons") or 0),
        uncorrected_ecc=fields.whole(item, "uncorrected_ecc"),
        remapping_failed=fields.flag(item, "remapping_failed"),
        moved_bytes=fields.whole(item, "moved_bytes"),
        temperature_c=fields.whole(item, "temperature_c"),
        problem=fields.text(item, "problem", 200),
    )
