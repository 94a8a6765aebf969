"""What each GPU was doing over its looks: spinning in a collective, idle, busy, or lost.

In: GPU looks from any number of files. Out: a `GpuDevice` each, the odd ones out, and which rank a device belongs to.

A collective that waits keeps a kernel resident, so a stuck GPU shows 100 percent use. What tells it from work is power:
public reports have a hung H100 at 152 W of 700 W, beside siblings at 130 W that do nothing; a wedged GB10 at 16 to 27 W
beside a healthy one at 45 to 90 W; training draws more than half of the limit. These are few, and none is
authoritative: small models and decoding also draw little, so bytes that move rule spinning out, and `is_sure` asks for
as many looks as one needs not to catch a pause.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from statistics import fmean
from typing import TypeVar

from ncclprobe.model.gpu import GpuLook
from ncclprobe.model.records import Sourced

Name = TypeVar("Name", int, str)

SPIN_UTIL_PERCENT = 95
SPIN_POWER_SHARE = 0.4
BUSY_POWER_SHARE = 0.5
BUSY_MEMORY_PERCENT = 10
SPIN_MEMORY_PERCENT = 5
STILL_BYTES_PER_S = 1e6
MOVING_BYTES_PER_S = 100e6
SURE_LOOKS = 5
SURE_SECONDS = 5.0
RECENT_S = 60.0
RECENT_LOOKS = 10


class GpuState(str, Enum):
    """`SPINNING`: a kernel is resident and does nothing. `IDLE`: none is resident. `LOST`: it cannot be read."""

    SPINNING = "spinning"
    IDLE = "idle"
    BUSY = "busy"
    LOST = "lost"
    UNKNOWN = "unknown"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """One device of one host and its last looks, in order of time as far as that is known.

    `key`: its bus id (`0000:9b:00.0`), else its uuid, else `GPU 3`. `power_share`: mean power over the limit, 0 to 1.
    `moved_bytes_per_s`: over NVLink and PCIe, between the first look and the last; None where not known. `says`: the
    figures in words. `is_sure`: enough looks over enough time, or bytes that are known to stand still.
    """

    host: str
    key: str
    index: int | None
    pids: frozenset[int]
    state: GpuState
    is_sure: bool
    power_share: float | None
    moved_bytes_per_s: float | None
    says: str
    looks: tuple[Sourced[GpuLook], ...]


def find_devices(looks: Iterable[Sourced[GpuLook]]) -> tuple[GpuDevice, ...]:
    """Every device, in order of host and key; looks of several files at one device are joined."""
    by_host: dict[str, list[Sourced[GpuLook]]] = defaultdict(list)
    for look in looks:
        by_host[look.record.host or look.artifact.host].append(look)
    found = [
        _device(host, key, those) for host, of_host in by_host.items() for key, those in _by_device(of_host).items()
    ]
    return tuple(sorted(found, key=lambda device: (device.host, device.key)))


def odd_devices(devices: Sequence[GpuDevice]) -> tuple[GpuDevice, ...]:
    """Those that are lost, busy or idle while most others spin: what the others wait for runs there, or nowhere.

    An idle device without a process, where processes are known of others, is not part of the job. Empty where none
    spins, or where those that do not are too many to be the odd ones.
    """
    spinning = [device for device in devices if device.state is GpuState.SPINNING]
    has_pids = any(device.pids for device in devices)
    odd = [
        device
        for device in devices
        if device.state in (GpuState.LOST, GpuState.BUSY)
        or (device.state is GpuState.IDLE and (device.pids or not has_pids))
    ]
    is_few = len(odd) < len(spinning) or (len(odd) == len(spinning) == 1 and odd[0].state is not GpuState.IDLE)
    return tuple(odd) if is_few else ()


def are_all_spinning(devices: Sequence[GpuDevice]) -> bool:
    """Whether each of at least two devices spins: then nobody computes, and the fault lies between them."""
    return len(devices) > 1 and all(device.state is GpuState.SPINNING for device in devices)


def owner_of(
    device: GpuDevice, by_pid: Mapping[tuple[str, int], int], by_bus: Mapping[tuple[str, str], int]
) -> int | None:
    """The rank of a device: by the pid that NVML shows on it, else by its bus id; None where none or several fit.

    `by_pid` has host and pid, `by_bus` host and bus id (see `model.bus_id`); a host that is not known, `""`, fits all.
    """
    ranks = _fitting(device, by_pid, device.pids)
    return ranks if ranks is not None else _fitting(device, by_bus, {device.key})


def _fitting(device: GpuDevice, ranks: Mapping[tuple[str, Name], int], names: Iterable[Name]) -> int | None:
    wanted = set(names)
    if device.host:
        keys = {(host, name) for name in wanted for host in (device.host, "")}
    else:
        keys = {key for key in ranks if key[1] in wanted}
    found = {ranks[key] for key in keys if key in ranks}
    return found.pop() if len(found) == 1 else None


def _by_device(looks: list[Sourced[GpuLook]]) -> dict[str, list[Sourced[GpuLook]]]:
    """By the bus id, to which uuid and index lead where another look has both."""
    buses: dict[str | int, set[str]] = defaultdict(set)
    for look in looks:
        if look.record.bus_id is not None:
            for name in (look.record.uuid, look.record.index):
                if name not in ("", None):
                    buses[name].add(look.record.bus_id)
    devices: dict[str, list[Sourced[GpuLook]]] = defaultdict(list)
    for look in looks:
        devices[_key(look.record, buses)].append(look)
    return devices


def _key(look: GpuLook, buses: Mapping[str | int, set[str]]) -> str:
    if look.bus_id is not None:
        return look.bus_id
    for name in (look.uuid, look.index):
        if name not in ("", None) and len(buses.get(name, ())) == 1:
            return next(iter(buses[name]))
    return look.uuid or ("a GPU" if look.index is None else f"GPU {look.index}")


def _device(host: str, key: str, given: list[Sourced[GpuLook]]) -> GpuDevice:
    looks = _recent(given)
    records = [look.record for look in looks]
    moved = _moved_bytes_per_s(looks)
    shares = [look.power_w / look.power_limit_w for look in records if look.power_w is not None and look.power_limit_w]
    state = _state(records, shares, moved)
    return GpuDevice(
        host=host,
        key=key,
        index=next((look.index for look in records if look.index is not None), None),
        pids=frozenset(pid for look in records for pid in look.pids),
        state=state,
        is_sure=_is_sure(looks, moved) if state is not GpuState.LOST else True,
        power_share=fmean(shares) if shares else None,
        moved_bytes_per_s=moved,
        says=_says(records, shares, moved),
        looks=tuple(looks),
    )


def _recent(looks: list[Sourced[GpuLook]]) -> list[Sourced[GpuLook]]:
    """In order of time; a file that was written for hours begins before the hang, and only its end counts."""
    ordered = sorted(looks, key=lambda look: _when_ns(look) or 0)  # stable: without times the order of the file stays
    last_ns = _when_ns(ordered[-1])
    if last_ns is None:
        return ordered[-RECENT_LOOKS:]
    return [look for look in ordered if (_when_ns(look) or 0) >= last_ns - RECENT_S * 1e9]


def _state(looks: list[GpuLook], shares: list[float], moved: float | None) -> GpuState:
    utils = [look.util_percent for look in looks if look.util_percent is not None]
    memory = [look.memory_util_percent for look in looks if look.memory_util_percent is not None]
    if looks[-1].problem:
        return GpuState.LOST
    if not utils:
        return GpuState.UNKNOWN
    is_still = moved is None or moved < STILL_BYTES_PER_S
    if max(utils) == 0:
        return GpuState.IDLE if is_still else GpuState.UNKNOWN
    if (shares and fmean(shares) > BUSY_POWER_SHARE) or (memory and fmean(memory) > BUSY_MEMORY_PERCENT):
        return GpuState.BUSY
    if moved is not None and moved > MOVING_BYTES_PER_S:
        return GpuState.BUSY
    is_resident = min(utils) >= SPIN_UTIL_PERCENT
    is_cool = bool(shares) and max(shares) < SPIN_POWER_SHARE
    is_quiet = is_still and max(memory, default=0) <= SPIN_MEMORY_PERCENT
    return GpuState.SPINNING if is_resident and is_cool and is_quiet else GpuState.UNKNOWN


def _is_sure(looks: list[Sourced[GpuLook]], moved: float | None) -> bool:
    times = [when for look in looks if (when := _when_ns(look)) is not None]
    lasts_s = (times[-1] - times[0]) / 1e9 if times else 0.0
    return moved is not None or (len(looks) >= SURE_LOOKS and lasts_s >= SURE_SECONDS)


def _when_ns(look: Sourced[GpuLook]) -> int | None:
    return look.record.time_ns if look.record.time_ns is not None else look.artifact.start_ns


def _moved_bytes_per_s(looks: list[Sourced[GpuLook]]) -> float | None:
    """None without two looks with a count and a time, or where the count went back: the driver was loaded anew."""
    counted = [
        (when, look.record.moved_bytes)
        for look in looks
        if look.record.moved_bytes is not None and (when := _when_ns(look)) is not None
    ]
    if len(counted) < 2:
        return None
    (start_ns, before), (end_ns, after) = counted[0], counted[-1]
    return (after - before) / ((end_ns - start_ns) / 1e9) if end_ns > start_ns and after >= before else None


def _says(looks: list[GpuLook], shares: list[float], moved: float | None) -> str:
    """`100 % use at 152 W of 700 W, no bytes moved`; of several looks the range."""
    if looks[-1].problem:
        return looks[-1].problem
    utils = [look.util_percent for look in looks if look.util_percent is not None]
    powers = [look.power_w for look in looks if look.power_w is not None]
    limit = next((look.power_limit_w for look in looks if look.power_limit_w is not None), None)
    parts = [f"{_range(utils)} % use" if utils else "use not known"]
    if powers:
        parts.append(f"{_range(powers)} W" + (f" of {limit:.0f} W" if limit is not None and shares else ""))
    if moved is not None:
        parts.append("no bytes moved" if moved < STILL_BYTES_PER_S else f"{moved / 1e6:.0f} MB/s moved")
    return ", ".join(parts)


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"
