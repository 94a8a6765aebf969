"""Settings of the job's communication, from the environment a process was started with.

In: an environment. Out: the variables that NCCL, torch.distributed and rendezvous read, and no others: an environment
may hold secrets.
"""

import re
from collections.abc import Mapping

_WANTED = re.compile(
    r"(NCCL|TORCH_NCCL|TORCH_FR|TORCH_DISTRIBUTED|TORCH_ELASTIC|GLOO|UCX|FI)_[A-Z0-9_]{1,80}"
    r"|MASTER_ADDR|MASTER_PORT|(LOCAL_)?WORLD_SIZE|CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING|CUDA_DEVICE_MAX_CONNECTIONS"
    r"|OMP_NUM_THREADS|TORCH_CPP_LOG_LEVEL|TORCH_SHOW_CPP_STACKTRACES"
)
_SECRET = re.compile(r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY", re.IGNORECASE)
_MAX_VALUE = 256
_MAX_COUNT = 200


def settings_in(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Names and values in order of name, values cut at 256 characters."""
    names = (name for name in sorted(environ) if _WANTED.fullmatch(name) and not _SECRET.search(name))
    return tuple((name, environ[name][:_MAX_VALUE]) for name in names)[:_MAX_COUNT]
