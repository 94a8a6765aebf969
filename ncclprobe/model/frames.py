"""Frames of Python code, as py-spy and the flight recorder name them.

In: nothing. Out: `Frame`, and the rule that tells the user's own code from torch, frameworks and the interpreter.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

KERNEL = "<kernel>"
"""The file of a frame inside the kernel."""

# Folders of installed code, and the interpreter's own. `<frozen importlib._bootstrap>` and `<string>` have no file.
_LIBRARY = re.compile(r"(^|/)(site-packages|dist-packages)/|(^|/)lib(64)?/python\d(\.\d+)?/|^<")
# Frames of C and C++ (py-spy --native, torch with TORCH_NCCL_TRACE_CPP_STACK): a shared object, a source, or nothing.
_NATIVE = re.compile(r"^$|^\?\?|\.so(\.\d+)*$|\.(c|cc|cpp|cxx|cu|cuh|h|hpp|S)$|(^|/)python\d(\.\d+)?$")
# py-spy's text shortens paths to the outermost package: nothing but its name says that it is installed.
# torch, and Python itself: frames there do not say which part of a program it was.
_DEEP = re.compile(r"(^|/)(torch|torchvision|numpy)/|(^|/)lib(64)?/python\d(\.\d+)?/(?!site-packages|dist-packages)|^<")
_STDLIB_SHORT = re.compile(
    r"^((threading|_?queue|runpy|selectors|socket|socketserver|ssl|subprocess|contextlib|shutil|pickle|tempfile|pathlib"
    r"|functools|copy|weakref|zipfile|tarfile|gzip|traceback|inspect|ast|typing|abc|enum|pdb|bdb|cmd)\.py$"
    r"|(concurrent|asyncio|multiprocessing|logging|http|urllib|importlib|json|ctypes|xml|encodings)/)"
)
_INSTALLED_SHORT = re.compile(
    r"^(torch\w*|functorch|triton|deepspeed|megatron|transformer_engine|apex|accelerate|transformers|tokenizers|datasets"
    r"|huggingface_hub|safetensors|peft|trl|lightning\w*|pytorch_lightning|vllm|sglang|flashinfer|flash_attn|xformers"
    r"|ray|verl|nemo|fairscale|timm|mmengine|mmcv|monai|webdataset|streaming|fsspec|s3fs|gcsfs|boto3|botocore|aiohttp"
    r"|urllib3|requests|httpx|httpcore|grpc|zmq|wandb|tensorboardX?|mlflow|comet_ml|neptune|clearml|swanlab|numpy|scipy"
    r"|pandas|pyarrow|PIL|cv2|sklearn|tqdm|rich|filelock|portalocker|IPython|ipykernel|debugpy|pydevd|hydra|omegaconf"
    r"|cupy|numba|joblib|dill|cloudpickle|pydantic|fastapi|uvicorn|uvloop|starlette|absl|fire|click|jax|tensorflow"
    r"|composer|colossalai|bitsandbytes|optimum|evaluate|lm_eval|sentence_transformers|psutil|setuptools|pkg_resources"
    r"|deep_gemm|deep_ep|tilelang|tvm|nvidia_resiliency_ext|openrlhf|tiktoken|sentencepiece|modelscope|nltk|sacrebleu"
    r"|rouge_score|pycocotools|detectron2|decord|lmdb|h5py|zarr|librosa|soundfile|spacy|litdata|ffcv|petastorm|nvidia/dali"
    r"|google/cloud|oss2|openai|anthropic|sqlalchemy|psycopg2?|redis|pymongo|paramiko|websockets|lmcache|nixl|mooncake"
    r")/"
)


@dataclass(frozen=True, slots=True)
class Frame:
    """One Python frame. `line` counts from 1; 0 or None mean unknown."""

    function: str
    file: str
    line: int | None = None

    def __reduce__(self) -> "tuple[object, ...]":
        """By way of one call, which keeps what many ranks share once: stacks come from other processes."""
        return _frame, (self.function, self.file, self.line)

    @property
    def short_function(self) -> str:
        """The last dotted part: py-spy 0.4.3 prints qualified names on Python 3.11 and later, older ones do not."""
        return self.function.rsplit(".", 1)[-1]

    @property
    def is_user_code(self) -> bool:
        """Whether the file is Python code outside installed packages and the interpreter."""
        return _is_users(self.file)

    @property
    def is_native(self) -> bool:
        """Whether it is a frame of C, C++ or the kernel."""
        return _is_native(self.file)

    def __str__(self) -> str:
        return f"{self.function} ({self.file}:{self.line})"


@lru_cache(maxsize=1 << 16)
def _frame(function: str, file: str, line: int | None) -> Frame:
    return Frame(function, file, line)


@lru_cache(maxsize=1 << 16)
def _is_users(file: str) -> bool:
    patterns = (_LIBRARY, _STDLIB_SHORT, _INSTALLED_SHORT, _NATIVE)
    return not any(pattern.search(file) for pattern in patterns)


@lru_cache(maxsize=1 << 16)
def _is_native(file: str) -> bool:
    return file == KERNEL or _NATIVE.search(file) is not None


Stack = tuple[Frame, ...]
"""Frames of one thread, innermost first."""


def innermost_user_frame(stack: Iterable[Frame]) -> Frame | None:
    """The user's own line: the innermost frame outside torch, frameworks and the interpreter."""
    return next((frame for frame in stack if frame.is_user_code), None)


def trace_of(stack: Stack) -> tuple[tuple[str, str, int | None], ...]:
    """What of a stack is equal in all ranks, at all looks and in all tools, that are at the same place.

    Without C frames, whose addresses differ, and folders, which py-spy's text cuts; the line inside the innermost
    function may differ: a loop stays in it.
    """
    calls = [
        (frame.short_function, frame.file.rsplit("/", 1)[-1], frame.line) for frame in stack if not frame.is_native
    ]
    if not calls:
        return tuple((frame.function, "", None) for frame in stack if not frame.function.startswith("0x"))
    return ((*calls[0][:2], None), *calls[1:])


def telling_frame(stack: Iterable[Frame]) -> Frame | None:
    """Where no frame is the user's: the innermost Python frame of a framework, outside torch and the interpreter."""
    return next((frame for frame in stack if frame.file.endswith(".py") and not _DEEP.search(frame.file)), None)
