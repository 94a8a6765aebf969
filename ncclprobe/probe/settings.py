"""Settings of the job's communication, from the environment a process was started with.

In: an environment. Out: the variables that NCCL, torch.distributed and rendezvous read, and no others: an environment
may hold secrets.
"""

import re
from collections.abc import Mapping
from pathlib import Path

_WANTED = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_FR|TORCH_DISTRIBUTED|TORCH_ELASTIC|GLOO|UCX|FI)_[A-Z0-9_]{1,80}"
    r"|MASTER_ADDR|MASTER_PORT|(LOCAL_)?WORLD_SIZE|CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|CUDA_DEVICE_MAX_CONNECTIONS"
    r"|OMP_NUM_THREADS|TORCH_CPP_LOG_LEVEL|TORCH_SHOW_CPP_STACKTRACES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY", re.IGNORECASE)
_DRIVER = re.compile(r"NVRM version:.*?\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b")
_MAX_VALUE = 256
_MAX_COUNT = 200


def settings_in(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and values in order of name, values cut at 256 characters."""
    names = (name for name in sorted(environ) if _WANTED.fullmatch(name) and not _SECRET.search(name))
    return tuple((name, environ[name][:_MAX_VALUE]) for name in names)[:_MAX_COUNT]


def nvidia_driver(path: Path = Path("/proc/driver/nvidia/version")) -> str | None:
    """The version of the kernel's NVIDIA driver: `NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  ...`."""
    try:
        found = _DRIVER.search(path.read_text(errors="replace")[:4_096])
    except OSError:
        return None
    return found[1] if found else None
