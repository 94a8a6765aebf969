"""State of the GPUs, from NVML.

In: the driver's library on the host. Out: a JSON file a device, `{"driver": ..., "gpus": [...]}`; a gap without one.
"""

import ctypes
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.probe.source import Context, Disturbance, Found, Source


def collect(context: Context) -> Iterator[Found | Gap]:
    """One look at every device, each in a file of its own.

    NVML can block for ever when the firmware of a GPU is dead: then this source times out, and the devices before that
    one are there.
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
    driver = _text(_ask(pynvml.nvmlSystemGetDriverVersion))
    for index in range(_ask(pynvml.nvmlDeviceGetCount) or 0):
        start_ns = time.time_ns()
        try:
            device = _device(pynvml, index)
        except pynvml.NVMLError as error:
            yield _lost(context, index, str(error))
            continue
        yield _found(index, {"driver": driver, "gpus": [device]}, start_ns)


def _has_driver() -> bool:
    """Whether NVML's library is there; the module for it is slow to load."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return False
    return True


def _found(index: int, document: dict[str, Any], start_ns: int) -> Found:
    return Found(
        file=f"gpu{index}.json",
        kind=Kind.GPU,
        origin=f"NVML, device {index}",
        data=json.dumps(document, indent=1).encode(),
        start_ns=start_ns,
        end_ns=time.time_ns(),
    )


def _gap(context: Context, error: str | None) -> Gap:
    why, action = "there is no NVIDIA driver on this host", "none needed on a CPU-only host"
    if error is not None:
        why, action = f"NVML answers: {error}", "run nvidia-smi on the host and read dmesg for Xid"
    return Gap(who=context.host, what="no GPU state", why=why, action=action)


def _lost(context: Context, index: int, error: str) -> Gap:
    why = f"NVML answers: {error}"
    return Gap(who=context.host, what=f"GPU {index}", why=why, action="the GPU may be lost: read dmesg for Xid")


def _device(nvml: Any, index: int) -> dict[str, Any]:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    rates = _ask(nvml.nvmlDeviceGetUtilizationRates, handle)
    power_mw = _ask(nvml.nvmlDeviceGetPowerUsage, handle)
    limit_mw = _ask(nvml.nvmlDeviceGetEnforcedPowerLimit, handle)
    processes = _ask(nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
    return {
        "index": index,
        "uuid": _text(_ask(nvml.nvmlDeviceGetUUID, handle)),
        "name": _text(_ask(nvml.nvmlDeviceGetName, handle)),
        "util_percent": rates.gpu if rates else None,
        "memory_util_percent": rates.memory if rates else None,
        "power_w": power_mw / 1000 if power_mw is not None else None,
        "power_limit_w": limit_mw / 1000 if limit_mw is not None else None,
        "sm_clock_mhz": _ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
        "pids": sorted(process.pid for process in processes),
    }


def _ask(call: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None: each figure is missing on some device or driver."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001 - NVMLError has a class per code, and old libraries lack whole functions
        return None


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")


SOURCE = Source(name="gpu", disturbs=Disturbance.NOTHING, collect=collect, timeout_s=10.0)
