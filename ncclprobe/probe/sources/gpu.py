"""State of the GPUs at two looks, from NVML.

In: the driver's library on the host. Out: a JSON file a device and look, `{"driver": ..., "gpus": [...]}`; a device
that is lost or does not answer has a `problem`. A gap without a driver.
"""

import ctypes
import json
import re
import threading
import time
from collections.abc import Iterator
from typing import Any

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_DEVICE_TIMEOUT_S = 2.0
_RESERVE_S = 1.0
_ALL_LINKS = 0xFFFFFFFF
_MAX_LINKS = 18
_SAMPLES_SINCE_S = 5
_LOST = re.compile(r"is ?lost|reset ?required|requires reset", re.IGNORECASE)


def collect(context: Context) -> Iterator[Found | Gap]:
    """Two looks at every device, the options' interval apart, each in a file of its own.

    NVML can block for ever when the firmware of a GPU is dead, and with it every device after that one: each has a
    thread and a time of its own, and one that did not answer is not asked again.
    """
    if not _has_driver():
        yield _gap(context, None)
        return
    import pynvml  # the kit brings it; imported here because only this child process may hang in it

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        yield _gap(context, str(error))
        return
    driver = _text(_ask(pynvml, "nvmlSystemGetDriverVersion"))
    devices = [_Device(pynvml, index) for index in range(_ask(pynvml, "nvmlDeviceGetCount") or 0)]
    started = time.monotonic()
    for look in (1, 2):
        for device in devices:
            start_ns = time.time_ns()
            state = device.look()
            yield _found(device.index, look, {"driver": driver, "gpus": [state]}, start_ns)
            if state.get("problem"):
                yield _lost(context, device.index, state["problem"])
        devices = [device for device in devices if not device.problem]
        if look == 1 and devices:
            left_s = context.deadline - _RESERVE_S - time.monotonic()
            time.sleep(max(0.0, min(started + context.options.interval_s - time.monotonic(), left_s)))


class _Device:
    """One GPU. `problem` once it could not be read."""

    def __init__(self, nvml: Any, index: int) -> None:
        self.index = index
        self.problem = ""
        self._nvml = nvml
        self._pcie = _PcieBytes()

    def look(self) -> dict[str, Any]:
        """Its figures; those that it does not have are null."""
        answers: list[dict[str, Any]] = []
        asking = threading.Thread(target=lambda: answers.append(self._read()), daemon=True)
        asking.start()
        asking.join(_DEVICE_TIMEOUT_S)
        if not answers:
            self.problem = f"NVML did not answer in {_DEVICE_TIMEOUT_S:g} s"
            return {"index": self.index, "time_ns": time.time_ns(), "problem": self.problem}
        self.problem = answers[0]["problem"]
        return answers[0]

    def _read(self) -> dict[str, Any]:
        state: dict[str, Any] = {"index": self.index, "time_ns": time.time_ns(), "problem": ""}
        asked = _Asked(self._nvml)
        try:
            handle = self._nvml.nvmlDeviceGetHandleByIndex(self.index)
            state |= _figures(asked, handle)
            state["moved_bytes"] = _sum_known(_nvlink_bytes(asked, handle), self._pcie.moved(asked, handle))
        except Exception as error:  # noqa: BLE001 - NVMLError has a class per code; whatever it is, it costs this GPU
            state["problem"] = f"NVML answers: {error}"
        return state | {"problem": state["problem"] or asked.problem}


class _Asked:
    """Asks NVML, and notes the first answer that says the device is lost: else a missing figure is only missing."""

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.problem = ""

    def __call__(self, name: str, *arguments: Any) -> Any:
        """The answer, or None: each figure is missing on some device or driver."""
        try:
            return getattr(self.nvml, name)(*arguments)
        except Exception as error:  # noqa: BLE001 - NVMLError has a class per code, and old libraries lack functions
            if not self.problem and _LOST.search(f"{type(error).__name__} {error}"):
                self.problem = f"NVML answers: {error}"
            return None


def _ask(nvml: Any, name: str) -> Any:
    return _Asked(nvml)(name)


def _figures(ask: _Asked, handle: Any) -> dict[str, Any]:
    rates = ask("nvmlDeviceGetUtilizationRates", handle)
    power_mw = ask("nvmlDeviceGetPowerUsage", handle)
    limit_mw = ask("nvmlDeviceGetEnforcedPowerLimit", handle)
    rows = ask("nvmlDeviceGetRemappedRows", handle)
    reasons = ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
    pci = ask("nvmlDeviceGetPciInfo", handle)
    processes = ask("nvmlDeviceGetComputeRunningProcesses", handle) or []
    return {
        "uuid": _text(ask("nvmlDeviceGetUUID", handle)),
        "name": _text(ask("nvmlDeviceGetName", handle)),
        "bus_id": _text(pci.busId) if pci else "",
        "util_percent": rates.gpu if rates else None,
        "memory_util_percent": rates.memory if rates else None,
        "power_w": power_mw / 1000 if power_mw is not None else None,
        "power_limit_w": limit_mw / 1000 if limit_mw is not None else None,
        "sm_clock_mhz": ask("nvmlDeviceGetClockInfo", handle, _constant(ask, "NVML_CLOCK_SM", 1)),
        "max_sm_clock_mhz": ask("nvmlDeviceGetMaxClockInfo", handle, _constant(ask, "NVML_CLOCK_SM", 1)),
        "clock_reasons": reasons if reasons is not None else ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle),
        "uncorrected_ecc": ask("nvmlDeviceGetTotalEccErrors", handle, 1, 0),  # uncorrected, since the driver was loaded
        "remapping_failed": bool(rows[3]) if rows else None,
        "temperature_c": ask("nvmlDeviceGetTemperature", handle, 0),
        "pids": sorted(process.pid for process in processes),
        "process_use": _process_use(ask, handle),
    }


def _process_use(ask: _Asked, handle: Any) -> list[dict[str, int]]:
    """Shares of the last seconds in which each process had a kernel resident."""
    since_us = time.time_ns() // 1000 - _SAMPLES_SINCE_S * 10**6
    newest = {sample.pid: sample for sample in ask("nvmlDeviceGetProcessUtilization", handle, since_us) or ()}
    return [
        {"pid": pid, "util_percent": sample.smUtil, "memory_util_percent": sample.memUtil}
        for pid, sample in sorted(newest.items())
    ]


def _nvlink_bytes(ask: _Asked, handle: Any) -> int | None:
    """Both directions over all links, since the driver was loaded; None without NVLink."""
    fields = [_constant(ask, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX", 138),
              _constant(ask, "NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX", 139)]  # fmt: skip
    total = _sum_known(*_values(ask, handle, [(field, _ALL_LINKS) for field in fields]))
    if total is None:  # older drivers know links only one by one
        total = _sum_known(*_values(ask, handle, [(field, link) for field in fields for link in range(_MAX_LINKS)]))
    return total * 1024 if total is not None else None


class _PcieBytes:
    """What went over PCIe: counted on new drivers, else estimated from the rate at each look."""

    def __init__(self) -> None:
        self._bytes = 0
        self._rate_at: tuple[float, float] | None = None

    def moved(self, ask: _Asked, handle: Any) -> int | None:
        """Both directions; only the difference of two looks means something."""
        counted = _sum_known(*_values(ask, handle, [(197, 0), (198, 0)]))
        if counted is not None:
            return counted
        rates = [ask("nvmlDeviceGetPcieThroughput", handle, direction) for direction in (0, 1)]  # KB/s over 20 ms
        if None in rates:
            return None
        now, rate = time.monotonic(), 1000.0 * sum(rates)
        if self._rate_at is not None:
            then, before = self._rate_at
            self._bytes += int((now - then) * (rate + before) / 2)
        self._rate_at = now, rate
        return self._bytes


def _values(ask: _Asked, handle: Any, fields: list[tuple[int, int]]) -> list[int | None]:
    """Values of fields, each with its scope; None where NVML has none."""
    answers = ask("nvmlDeviceGetFieldValues", handle, fields) or ()
    return [int(answer.value.ullVal) if answer.nvmlReturn == 0 else None for answer in answers]


def _sum_known(*values: int | None) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _constant(ask: _Asked, name: str, value: int) -> int:
    """NVML's own number, which old Python bindings may not name."""
    return int(getattr(ask.nvml, name, value))


def _has_driver() -> bool:
    """Whether NVML's library is there; the module for it is slow to load."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _found(index: int, look: int, document: dict[str, Any], start_ns: int) -> Found:
    return Found(
        file=f"gpu{index}.look{look}.json",
        kind=Kind.GPU,
        origin=f"NVML, device {index}",
        data=json.dumps(document, indent=1).encode(),
        look=look,
        start_ns=start_ns,
        end_ns=time.time_ns(),
    )


def _gap(context: Context, error: str | None) -> Gap:
    why, action = "there is no NVIDIA driver on this host", "none needed on a CPU-only host"
    if error is not None:
        why, action = f"NVML answers: {error}", "run nvidia-smi on the host and read dmesg for Xid"
    return Gap(who=context.host, what="no GPU state", why=why, action=action)


def _lost(context: Context, index: int, why: str) -> Gap:
    return Gap(who=context.host, what=f"GPU {index}", why=why, action="the GPU may be lost: read dmesg for Xid")


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


SOURCE = Source(name="gpu", disturbs=Disturbance.NOTHING, collect=collect, timeout_s=20.0, looks=2)
