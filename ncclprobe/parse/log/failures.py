"""What kind of failure an exception is: the cause of a hang, or the echo of one.

In: an exception's name and message, and the stack it was raised in. Out: its `Failure`.

Texts as torch 1.13 to 2.13, CUDA 11 to 13, vLLM and Ray write them. A fault of the GPU is looked for first: torch wraps
it into the same exceptions as a time-out.
"""

import re

from ncclprobe.model.frames import Stack
from ncclprobe.model.log import Failure


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns), re.IGNORECASE)


_GPU_MEMORY = _words(
    r"(CUDA|HIP|XPU) out of memory",
    r"(CUDA|HIP) (driver )?error: out of memory",
    r"Cuda failure (\d+ )?'out of memory'",
    r"(CUBLAS|CUSOLVER|CUSPARSE|CUDNN)_STATUS_ALLOC_FAILED",
    r"cudaErrorMemoryAllocation|CUDA_ERROR_OUT_OF_MEMORY|hipErrorOutOfMemory",
)
_GPU_FAULT = _words(
    r"(CUDA|HIP|Cuda failure|Triton).{0,200}(ECC error|NVLink|hardware stack|contained error|fallen off|is lost)",
    r"uncorrectable (ECC|NVLink) error",
    r"cudaError(ECC|Nvlink|Hardware|Contained|Uncontained)\w*",
    r"CUDA_ERROR_(ECC|NVLINK|HARDWARE|CONTAINED)\w*",
    r"GPU (is lost|has fallen off)",
    r"device\(s\) is/are busy or unavailable|system (not yet|is not) initialized",
)
_GPU_ERROR = _words(
    r"(CUDA|HIP|XPU) (driver |runtime |kernel )?(error|failure)|cuda runtime error|Cuda failure|unhandled cuda error",
    r"Triton Error \[CUDA\]",
    r"(CUDNN|CUBLAS|CUSOLVER|CUSPARSE|CUFFT)_(STATUS|EXECUTION)_|cuDNN error",
    r"illegal memory access|device-side assert|misaligned address|unspecified launch failure",
)
_HOST_MEMORY = _words(
    r"DataLoader worker \(pid \d+\) is killed by signal: Killed",
    r"DefaultCPUAllocator: (can't|not enough)",
    r"Cannot allocate memory|std::bad_alloc|Unable to allocate [\d.]+ [KMGTP]i?B",
    r"node running low on memory",
)
# Somebody else failed first: these are written by programs that watch ranks, or by ranks told to stop.
_LAUNCHER_NAMES = re.compile(
    r"(ChildFailedError|ProcessExitedException|ProcessRaisedException|SignalException|KeyboardInterrupt|SystemExit"
    r"|CancelledError|ActorDiedError|RayActorError|ActorUnavailableError|WorkerCrashedError|RayTaskError(\(.*\))?"
    r"|EngineDeadError|AsyncEngineDeadError|MPClientEngineMonitor|Rendezvous\w*Error|TaskCancelledError)$"
)
_LAUNCHER_TEXT = _words(
    r"see root cause above|stack trace above for the root cause",
    r"Engine process failed to start|engine core.{0,30}(died|failed)",
    r"process \d+ terminated with (signal|exit code)|died with <Signals\.",
    r"one or more .{0,20}workers? .{0,10}(died|failed)",
    r"Process \d+ got signal: \d+|^cancelled$",
)
_LAUNCHER_FILE = re.compile(
    r"torch/distributed/(run|launch|launcher/\w+|elastic/(agent|rendezvous|multiprocessing/api)\S*)(\.py)?$"
    r"|(^|/)bin/(torchrun|accelerate|deepspeed|ray)$|accelerate/commands/\w+\.py$|deepspeed/launcher/\w+\.py$"
)
_CONNECTION = _words(
    r"Connection (was )?(likely )?(closed|reset|aborted)( by (remote )?peer)?",
    r"Broken pipe|Socket closed|End of file|failed to (recv|send)|(send|recv)(Bytes|Value|Vector)? ?failed",
    r"remote process exited or there was a network error|ncclRemoteError|unhandled system error|ncclSystemError",
    r"transport endpoint is not connected|connection error code",
)
_CONNECTION_NAMES = re.compile(
    r"(DistNetworkError|BrokenPipeError|ConnectionResetError|ConnectionAbortedError|EOFError)$"
)
_COLLECTIVE = _words(
    r"Watchdog caught collective|collective operation timeout|timed out in blocking wait",
    r"wait timeout after|Socket Timeout",
    r"Timed out (waiting \d+ ?ms for|initializing process group|after \d+ seconds waiting for clients)",
    r"(client|server) socket has timed out|timeout caused pair closure",
    r"NCCL communicator was aborted|NCCL error|ncclInternalError|ncclInvalidUsage|NCCL operations have failed",
    r"Detected mismatch between collectives|monitoredBarrier|store.{0,3}get\(|RPC call to \w+ timed out",
    r"clients? joined|remote error detected",
    # gloo ends the rank that receives more than it expects: the other end may as well have sent too much.
    r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected size",
)
_COLLECTIVE_NAMES = re.compile(r"(DistBackendError|DistStoreError|DistError|DistTimeoutError)$")
_OWN_FAULT = _words(r"EADDRINUSE|address already in use|failed to listen|EACCES")
# Downloads and trackers lose connections of their own; gloo's and the store's are lost by another rank's end.
_OWN_CONNECTION = re.compile(r"/(requests|urllib3|http|httpx|httpcore|aiohttp|botocore|boto3|s3fs|fsspec|smbclient)/")
_INNER_FRAMES = 5
_DISTRIBUTED = re.compile(r"torch/distributed/|deepspeed/comm/|gloo")


def classify(exception: str, message: str, stack: Stack = ()) -> Failure:
    """The kind of an exception. Without a name, a stack that ends in torch's collectives is taken for an echo."""
    text = f"{exception}: {message}"
    if exception.startswith("ray.") and exception.endswith("OutOfMemoryError"):
        return Failure.HOST_MEMORY
    gpu = _of_gpu(exception, text)
    if gpu is not None:
        return gpu
    if _is_of_launcher(exception, message, stack):
        return Failure.LAUNCHER_ECHO
    if exception.endswith("MemoryError") or _HOST_MEMORY.search(text):
        return Failure.HOST_MEMORY
    return _of_connections(exception, message, stack)


def _of_gpu(exception: str, text: str) -> Failure | None:
    if _GPU_MEMORY.search(text) or exception.endswith("OutOfMemoryError"):
        return Failure.GPU_MEMORY
    if _GPU_FAULT.search(text):
        return Failure.GPU_FAULT
    is_error = _GPU_ERROR.search(text) or exception.endswith("AcceleratorError")
    return Failure.GPU_ERROR if is_error else None


def _is_of_launcher(exception: str, message: str, stack: Stack) -> bool:
    if _LAUNCHER_NAMES.search(exception) or _LAUNCHER_TEXT.search(message):
        return True
    return any(_LAUNCHER_FILE.search(frame.file) for frame in stack)


def _of_connections(exception: str, message: str, stack: Stack) -> Failure:
    if _OWN_FAULT.search(message) or any(_OWN_CONNECTION.search(frame.file) for frame in stack):
        return Failure.PYTHON
    if _COLLECTIVE.search(message):
        return Failure.COLLECTIVE_ECHO
    if _CONNECTION_NAMES.search(exception) or _CONNECTION.search(message):
        return Failure.CONNECTION_ECHO
    if _COLLECTIVE_NAMES.search(exception):
        return Failure.COLLECTIVE_ECHO
    is_unnamed = not exception or exception.endswith("TimeoutError")
    if is_unnamed and any(_DISTRIBUTED.search(frame.file) for frame in stack[:_INNER_FRAMES]):
        return Failure.COLLECTIVE_ECHO
    return Failure.PYTHON
