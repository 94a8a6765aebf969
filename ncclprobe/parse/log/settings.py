"""Settings and versions that a log shows, the size of the job, and which process is which rank.

In: lines of shells, launchers, `pip list`, `uname`, `collect_env` and programs. Out: `Setting` and `WorldSize`, once
for each value of a rank and host.

Of environment variables only those of NCCL, torch.distributed and launchers are read: others may hold secrets.
"""

import re
from collections.abc import Iterator
from typing import Any

from ncclprobe.model.log import LogEvent, Setting, WorldSize
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.text import clean

NEEDLES = (
    b"MASTER_ADDR",
    b"WORLD_SIZE",
    b"NCCL_",
    b"GLOO_",
    b"--nnodes",
    b"--nproc",
    b"--master",
    b"--rdzv",
    b"nccl-cu1",
    b"nccl==",
    b"torch==",
    b"orch version",
    b"orch Version",
    b"driver version",
    b"Driver Version",
    b"driver 5",
    b"Linux ",
    b"orld size",
    b"orld_size",
    b"Starting with ",
    b"distributed backend",
    b"GLOBAL_RANK: ",
    b"] pid ",
    b"[PID:",
    b"devices used by this process",
    b"spawned with command",
    b"nprocs=",
    b"num_local_procs=",
    b"global_rank",
    b"world_rank=",
    b"host",
)
BLOCK_NEEDLES: tuple[bytes, ...] = ()

_MAX_SEEN = 20_000
_MAX_VALUE = 200
_MAX_LINE = 4_000
_VERSION = r"(\d{1,4}(?:\.\d{1,5}){1,3}(?:[+.][\w.]{1,30})?)"
_VARIABLE = re.compile(
    r"(?<![\w./-])((?:NCCL|TORCH_NCCL|TORCH_DISTRIBUTED|TORCHELASTIC|GLOO)_[A-Z0-9_]{1,60}|MASTER_(?:ADDR|PORT)|WORLD_SIZE"
    r"|(?:LOCAL_|NODE_|GROUP_)?RANK|LOCAL_WORLD_SIZE|NNODES|CUDA_VISIBLE_DEVICES|CUDA_LAUNCH_BLOCKING)"
    r"=(\"[^\"]{0,200}\"|'[^']{0,200}'|[^\s\"';]{1,200})"
)
_HINTS = ("NCCL_", "WORLD_SIZE", "RANK", "MASTER_", "GLOO_", "TORCH_", "CUDA_", "NNODES", "--n", "--m", "--r", "nccl",
          "orch", "river", "Linux ", "orld", "Starting with", "processes", "pid", "PID",
          "spawned", "procs=", " on ", "host", "ank ", "global_rank")  # fmt: skip
_SHELL = re.compile(r"[+$\s-]{0,8}(?:export |declare -x |set |env |ENV )?(?:\S{1,200} rank \d{1,7}: )?[\"']?")
_ADVICE = re.compile(r"\b(?:consider|you can|please|should|try|recommend\w*)\b", re.IGNORECASE)
_FLAG = re.compile(
    r"--(nnodes|nproc[-_]per[-_]node|node[-_]rank|master[-_]addr|master[-_]port|rdzv[-_]endpoint|rdzv[-_]backend)[= ]"
    r"([\w.:\[\]-]{1,200})"
)
_LAUNCHERS = ("torchrun", "torch.distributed", "accelerate launch", "deepspeed")
_VERSIONS: tuple[tuple[str, tuple[str, ...], re.Pattern[str]], ...] = (
    ("nccl", ("nccl",), re.compile(rf"\bnvidia-nccl-cu\d\d==? ?{_VERSION}|^nvidia-nccl-cu\d\d\s+{_VERSION}"
                        rf"|\busing nccl=={_VERSION}")),
    ("torch", ("torch", "Torch"), re.compile(rf"(?<![\w-])torch=={_VERSION}|^(?:py)?torch\s+{_VERSION}(?:\s|$)"
                         rf"|\b(?:Py)?[Tt]orch [Vv]ersion:?[ .]{{1,40}}{_VERSION}")),
    ("driver", ("river",), re.compile(rf"\b[Dd]river(?: [Vv]ersion)?:? {{1,3}}{_VERSION}\b")),
)  # fmt: skip
_UNAME = re.compile(
    r"^Linux (?P<host>[\w.-]{1,200}) (?P<kernel>\d+\.\S{1,100}) .{0,200}\b(?P<machine>aarch64|x86_64|ppc64le)\b"
)
_WORLD = re.compile(
    r"\busing world size: ?(\d{1,7})\b|(?<![\w-])world[_ ]size[ =:]{1,3}(\d{1,7})\b|\bStarting with (\d{1,7}) processes"
    r"|\bdist_world_size=(\d{1,7})\b|^\W*rank \d{1,7} of (\d{1,7})\b"
    r"|\bdistributed backend \w{1,20}, (\d{1,7}) processes|\bGLOBAL_RANK: \d{1,7}, MEMBER: \d{1,7}/(\d{1,7})",
    re.IGNORECASE,
)
_OWN_RANK = re.compile(
    r"\bGLOBAL_RANK: (\d{1,7})|(?<![\w.])RANK=(\d{1,7})\b|\bRank (\d{1,7}),? world[_ ]size"
    r"|\bworld_size=\d+ rank=(\d{1,7})\b|\[RANK:(\d{1,7})\]|\brank (\d{1,7}) in world size",
    re.IGNORECASE,
)
# torch.multiprocessing's call in a traceback, and DeepSpeed's launcher.
_LOCAL_SIZE = re.compile(r"\bspawn\(.{0,200}\bnprocs=(\d{1,5})\b|\bnum_local_procs=(\d{1,5})\b")
# What an agent of torchrun says after the rendezvous, and DeepSpeed of all its hosts.
_GLOBAL_RANKS = re.compile(r"^\s*global_ranks=\[(\d{1,7})\b")
_MAPPING = re.compile(r"'([\w.-]{1,200})': \[(\d{1,7})\b")
# `rank 8 on hawk7 (local 0)`, `host=n11 local_rank=0`; a device is no host.
_RANK_ON_HOST = re.compile(
    r"\brank[ =:]{1,2}(?P<rank>\d{1,7})\b,? (?:is |running |started ){0,2}on (?:host |node )?"
    r"(?P<on>[A-Za-z][\w.-]{0,200})"
    r"|(?<![\w.-])host(?:name)?[=:] ?(?P<host>[A-Za-z][\w.-]{0,200})",
    re.IGNORECASE,
)
_NO_HOST = re.compile(r"(?:cuda|gpu|cpu|xpu|npu|hip|device|local_?host)\b|(?:cuda|gpu)\d|[A-Za-z-]+$", re.IGNORECASE)
_NAMED_HOST = re.compile(r"^\[([A-Za-z][\w.-]{1,200})\] (?:pip|driver|conda)\b|^([\w.-]{1,200}) rank \d{1,7}: ")
_OWN_PID = re.compile(
    r"^(?:\W*\[?(?:rank|RANK)[ :=]{0,2}\d{1,7}\]?\W*)?(?:pid|PID)[ :=]{1,2}(\d{1,9})\b|\[PID:(\d{1,9})\]"
    r"|\brank[ =:]{1,2}\d{1,7}\W{1,3}pid[ =:]{1,2}(\d{1,9})\b|\bpid[ =:]{1,2}(\d{1,9})\W{1,3}rank[ =:]{1,2}\d{1,7}\b"
)
_SPAWNED = re.compile(r"\bprocess (\d{1,9}) spawned with command: .*--local_rank=(\d{1,5})\b")  # DeepSpeed
# Ray Train lists its workers: `- (node_id=4f, ip=10.0.0.2, pid=812) world_rank=3, local_rank=1, node_rank=0`.
_RAY_WORKER = re.compile(
    r"- \((?:node_id=\w{1,80}, )?ip=(?P<host>[\w.:]{1,100}), pid=(?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,7})\b"
)
# The launcher's pid is not that of a rank, and waiting ranks quote the size that the store was told.
_LAUNCHER_LINE = re.compile(r"torch/distributed/(?:run|launch|elastic)|torch\.distributed\.(?:run|elastic)")
_NO_SIZE = re.compile(r"store[ -]based barrier|^\s{4,}\w|NCCL (?:INFO|WARN)|local_world|tensor.parallel.{0,20}world")


class RECOGNIZER:
    """Tells each setting once."""

    def __init__(self) -> None:
        self._seen: set[tuple[str, str, object, object]] = set()

    def feed(self, line: LogLine) -> Iterator[LogEvent]:
        """What the line sets or shows."""
        text = line.text[:_MAX_LINE]
        if not (line.rank is not None and line.pid is not None) and not any(hint in text for hint in _HINTS):
            return
        who = _who(line, text)
        values = (*_settings(text), *_local_size(text))
        for name, value in values:
            yield from self._once(line, Setting(name=name, value=clean(value, _MAX_VALUE)), who)
        size = _size(text, dict(values))
        if size is not None:
            yield from self._once(line, WorldSize(size=size), who)
        yield from self._first_rank(line, text)
        yield from self._host(line, text, who)
        yield from self._process(line, text, who)

    def end(self) -> Iterator[LogEvent]:
        """Nothing is left open."""
        self._seen.clear()
        yield from ()

    def _first_rank(self, line: LogLine, text: str) -> Iterator[LogEvent]:
        """Where the ranks of a host begin."""
        own = _GLOBAL_RANKS.match(text) if "global_ranks=" in text else None
        if own:
            yield line.event(Setting(name="FIRST_RANK", value=own[1]), rank=None, pid=None)
        for host, first in _MAPPING.findall(text) if "global_rank_mapping" in text else ():
            yield from self._once(line, Setting(name="FIRST_RANK", value=first), {"rank": None, "host": host})

    def _host(self, line: LogLine, text: str, who: dict[str, Any]) -> Iterator[LogEvent]:
        """Where the speaker says that it runs."""
        match = _RANK_ON_HOST.search(text) if " on " in text or "host" in text else None
        host = (match["on"] or match["host"]) if match else None
        if match is None or host is None or _NO_HOST.match(host):
            return
        rank = int(match["rank"]) if match["rank"] else who.get("rank", line.rank)
        if rank is not None:
            name = clean(host.rstrip(".,"), _MAX_VALUE)
            yield from self._once(line, Setting(name="host", value=name), who | {"rank": rank, "host": name})

    def _process(self, line: LogLine, text: str, who: dict[str, Any]) -> Iterator[LogEvent]:
        worker = _RAY_WORKER.search(text) if "world_rank=" in text else None
        if worker:
            own_pid = Setting(name="pid", value=worker["pid"])
            yield line.event(own_pid, rank=int(worker["rank"]), pid=int(worker["pid"]), host=worker["host"])
            return
        spawned = _SPAWNED.search(text)
        if spawned:
            pid, local_rank = int(spawned[1]), int(spawned[2])
            yield line.event(Setting(name="pid", value=str(pid)), rank=None, pid=pid, local_rank=local_rank)
            return
        rank = who.get("rank", line.rank)
        if rank is None or _LAUNCHER_LINE.search(text):
            return
        match = _OWN_PID.search(text) if "pid" in text or "PID" in text else None
        own = next((int(group) for group in match.groups() if group), None) if match else line.pid
        if own is not None:
            yield from self._once(line, Setting(name="pid", value=str(own)), who | {"pid": own})

    def _once(self, line: LogLine, fact: Setting | WorldSize, who: dict[str, Any]) -> Iterator[LogEvent]:
        name, value = (fact.name, fact.value) if isinstance(fact, Setting) else ("world size", str(fact.size))
        key = (name, value, who.get("rank", line.rank), who.get("host", line.host))
        if key not in self._seen and len(self._seen) < _MAX_SEEN:
            self._seen.add(key)
            yield line.event(fact, **who)


def _who(line: LogLine, text: str) -> dict[str, Any]:
    """Rank and host where the line's own words name them."""
    who: dict[str, Any] = {}
    rank = _OWN_RANK.search(text) if any(word in text for word in ("RANK", "ank ", "rank=")) else None
    host, uname = _NAMED_HOST.match(text), _UNAME.match(text)
    is_local = line.local_rank is not None and line.rank is None and "[RANK:" in text
    if rank and not is_local and not (line.rank is not None and "store" in text):
        who["rank"] = int(next(group for group in rank.groups() if group))
    if host or uname:
        who["host"] = uname["host"] if uname else next(group for group in host.groups() if group) if host else None
    return who


def _settings(text: str) -> Iterator[tuple[str, str]]:
    yield from _variables(text)
    if "--" in text and any(launcher in text for launcher in _LAUNCHERS):
        for match in _FLAG.finditer(text):
            yield match[1].replace("-", "_").upper(), match[2]
    for name, words, pattern in _VERSIONS:
        found = pattern.search(text) if any(word in text for word in words) else None
        if found:
            yield name, next(group for group in found.groups() if group)
    uname = _UNAME.match(text)
    if uname is not None:
        yield "machine", uname["machine"]
        yield "kernel", uname["kernel"]


def _local_size(text: str) -> Iterator[tuple[str, str]]:
    """How many processes the launcher starts on its host."""
    found = _LOCAL_SIZE.search(text) if "procs=" in text else None
    if found:
        yield "NPROC_PER_NODE", next(group for group in found.groups() if group)


def _variables(text: str) -> Iterator[tuple[str, str]]:
    """Several, or one that the line begins with: torch's messages recommend others in the middle of a sentence."""
    if "=" not in text or "NCCL INFO" in text or _ADVICE.search(text):
        return
    found = list(_VARIABLE.finditer(text))
    if len(found) > 1 or (found and _SHELL.fullmatch(text[: found[0].start()])):
        for match in found:
            yield match[1], match[2].strip("\"'")


def _size(text: str, values: dict[str, str]) -> int | None:
    """How many ranks the line speaks of: said, set, or nodes times processes of a launcher's command."""
    is_about_it = any(word in text for word in ("orld", "WORLD", "rocesses", "MEMBER", "ank "))
    if (not is_about_it and "NNODES" not in values) or _NO_SIZE.search(text):
        return None
    match = _WORLD.search(text) if is_about_it else None
    if match:
        return int(next(group for group in match.groups() if group)) or None
    nodes, each, whole = (values.get(name, "") for name in ("NNODES", "NPROC_PER_NODE", "WORLD_SIZE"))
    if whole.isdigit() and len(whole) < 8:
        return int(whole) or None
    if nodes.isdigit() and each.isdigit() and len(nodes + each) < 10:
        return int(nodes) * int(each) or None
    return None
