"""Who wrote a line, and when: prefixes of launchers, of torch and of loggers, in any nesting.

In: whole lines in order. Out: `LogLine`s, one or more for each (a line may begin in the middle of another), and what
each line says of its rank that only the whole file can decide (`Claim`).

`[rank3]:` and `[rank 3]` of torch and of loggers are global, and the innermost of them counts. `[default3]:` of
torchrun is a local rank. `[Rank 3]` in torch's own lines is the rank in the first group, global in almost every job; it
counts where no `[rankN]:` is. `[PG ID 6 PG GUID 49(tp) Rank 1]` is a rank inside a group and counts for the default
group only. `3: ` of srun, `[1,3]<stderr>:` of mpirun and `TP3` of inference servers are `Claim`s. Where the launcher's
own label looks like torch's (`[rank3]:[rank11]:`, role "rank") it is a local rank, and so is a logger's that counts per
host.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from ncclprobe.parse.log.clock import Clock
from ncclprobe.parse.log.envelope import unwrap
from ncclprobe.parse.log.layout import Layout, plain
from ncclprobe.parse.log.line import LogLine
from ncclprobe.parse.log.sections import Owner, Sections, owner_of_path
from ncclprobe.parse.log.stamps import split_stamp

_MAX_LABELS = 6
_HEAD = 400
_MAX_NUMBER = 10**9

# --- labels in front of a line: taken off ---
_TASK = re.compile(r" {0,5}(?P<task>\d{1,5}): ?")
_HOST = re.compile(r"(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?: |$)")  # not NCCL's own `node1:71200:71200 [0] `
_ADDRESS = re.compile(r"(?P<host>\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}): ")
_MPIRUN = re.compile(r"\[[^\]\s,]{0,80},(?P<task>\d{1,6})\](?:<std(?:out|err|diag)>)?: ?")
_SAGEMAKER = re.compile(r"\[\d+,mpirank:(?P<task>\d{1,6}),(?P<host>[\w.-]{1,253})\](?:<std(?:out|err|diag)>)?: ?")
_ROLE = re.compile(r"\[rank(?P<local>\d{1,5})\]: ?")
_FILE = re.compile(
    r"(?P<file>(?:[\w.@+=-]{1,100}/){0,12}[\w.@+=-]{1,100}\.(?:log|out|err|txt|stderr|stdout)):(?:\d{1,9}:)?(?=\S)"
)
_DEFAULT = re.compile(r"\[(?:default|trainer|worker)_?(?P<local>\d{1,5})\]: ?")
_POD = re.compile(r"\[pod/(?P<host>[\w.-]+)/[\w.-]+\] ")
_COMPOSE = re.compile(r"(?P<host>[A-Za-z][\w.-]*[-_]\d+) +\| ")
_EXCEPTHOOK = re.compile(r"\[rank(?P<rank>\d{1,7})\]: ?(?!\[[DIWEF])")
_ACTOR = re.compile(
    r"\((?P<name>[^()]{0,80}?(?:\([^()]{0,80}\)[^()]{0,20}?)?)\s?(?:pid=(?P<pid>\d{1,9}))?"
    r"(?:, ip=(?P<host>[\w.:]+))?\) ?"
)

# --- parts of the line itself: left in ---
_TORCH = re.compile(
    r"(?:\[rank\d+\]:)?\[[DIWEF](?:\d{3,4} \d\d?:\d\d:\d\d\.\d+)? [\w./-]{1,200}\.(?:cpp|cc|cu|cuh|h|hpp):\d+\] "
    r"|(?<=\S)\[rank\d+\]:(?= Traceback \(| +File \")"
)
_SOURCES = (".cpp:", ".hpp:", ".cu:", ".h:", ".cc:", ".cuh:")
_RANK = re.compile(r"\[rank(?P<rank>\d{1,7})\]")
_LOGGED = re.compile(r"\[(?:global[ _])?rank[ :=]{0,2}(?P<rank>\d{1,7})\]", re.IGNORECASE)
_SELF = re.compile(
    r"(?:^|\] |\| )rank[ :]{0,2}(?P<first>\d{1,7})(?::| \|) |\brank[ =:]{0,2}(?P<second>\d{1,7}),? world[ _]size"
    r"|(?<![\w.])RANK=(?P<third>\d{1,7})\b",
    re.IGNORECASE,
)
_DEFAULT_GROUP = re.compile(
    r"\[PG (?:ID \d+ PG GUID 0(?:\(default_pg\))?|0(?: \(default_pg\))?|\d+ \(default_pg\)) Rank (?P<rank>\d{1,7})\]"
)
_NCCL = re.compile(r"(?<![\w.-])(?P<host>[A-Za-z0-9][\w.-]{0,252}):(?P<pid>\d{1,9}):\d{1,9} (?:\[-?\d+\] |NCCL)")
_PID = re.compile(r"\[PID:(\d{1,9})\]")
_PYTHON_PID = re.compile(r"[DIWEF]\d{4} [\d:.]{8,18} +(\d{1,9}) ")
_PER_HOST = re.compile(r"\[PID:\d{1,9}\] \[RANK:(?P<local>\d{1,5})\]")
_GRID = re.compile(r"(?<![A-Za-z0-9])(?P<axis>DP|PP|TP|EP|CP)(?P<number>\d{1,5})(?![A-Za-z0-9])")
_SERVER = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?P<axes>(?: [A-Z]{2,6}\d+)+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What may be the global rank. `kind`: `task` (srun), `mpi`, or `grid`, whose `axes` are `TP` and so on."""

    kind: str
    number: int = 0
    axes: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """A line, and its claim if it makes one."""

    line: LogLine
    claim: Claim | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Context:
    """What the labels in front of a line say."""

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    when_ns: int | None = None
    claim: Claim | None = None
    speaker: str = ""


class Prefixes:
    """Reads the prefixes of one log's lines in order."""

    def __init__(self, layout: Callable[[], Layout]) -> None:
        self._layout = layout
        self._clock: Clock | None = None
        self._sections = Sections()
        self._owner = _Context()

    def read(self, number: int, text: str) -> Iterator[Said]:
        """The lines in a line."""
        if self._clock is None:
            self._clock = Clock(self._layout().near_ns)
        context = self._owner
        if self._sections.is_heading(text):
            context, self._owner = _Context(), _of_owner(self._sections.owner)
        inner = unwrap(text)
        if inner is None:
            yield from self._labelled(number, text, context)
            return
        when_ns = self._clock.read(inner.time) if inner.time else None
        context = _Context(rank=inner.rank, host=inner.host, pid=inner.pid, when_ns=when_ns, speaker=inner.host or "")
        for line in inner.lines:
            yield from self._labelled(number, plain(line), context)

    def _labelled(self, number: int, text: str, context: _Context) -> Iterator[Said]:
        stamped = split_stamp(text, has_tasks=self._layout().has_tasks)
        if stamped is not None and self._clock is not None:
            context, text = replace(context, when_ns=self._clock.read(stamped[0])), stamped[1]
        for _ in range(_MAX_LABELS):
            found = self._label(text, context)
            if found is None:
                break
            context = _with_label(context, found)
            text = text[found.end() :]
        yield from self._parts(number, text, context)

    def _label(self, text: str, context: _Context) -> "re.Match[str] | None":
        first = text[:1]
        layout = self._layout()
        if layout.has_files and (found := _FILE.match(text)):
            return found
        if first == "[":
            return self._bracket(text, context)
        if first == "(":
            found = _ACTOR.match(text)
            is_actor = found and (found["pid"] or found["host"] or found["name"] in ("raylet", "gcs_server"))
            return found if is_actor else None
        if first.isdigit() or first == " ":
            return (_TASK.match(text) if layout.has_tasks else None) or _ADDRESS.match(text)
        if layout.hosts and (found := _HOST.match(text)) and found["host"] in layout.hosts:
            return found
        return _COMPOSE.match(text) if " | " in text[:80] else None

    def _bracket(self, text: str, context: _Context) -> "re.Match[str] | None":
        """Where the launcher's label is called `rank`, it is the first of two."""
        if self._layout().has_role_labels and context.local_rank is None and (found := _ROLE.match(text)):
            return found
        return (
            _DEFAULT.match(text)
            or _EXCEPTHOOK.match(text)
            or _MPIRUN.match(text)
            or _SAGEMAKER.match(text)
            or _POD.match(text)
        )

    def _parts(self, number: int, text: str, context: _Context) -> Iterator[Said]:
        """Cut where torch's own lines begin: a progress bar, or another rank's line, may stand before them."""
        cuts = [0]
        if any(source in text for source in _SOURCES) or text.find("[rank", 1) > 0:
            cuts += [found.start() for found in _TORCH.finditer(text) if found.start() > 0]
        for start, end in zip(cuts, [*cuts[1:], len(text)], strict=True):
            part = text[start:end]
            if start == 0 and len(cuts) > 1 and _is_only_clock(part):
                continue
            label = _EXCEPTHOOK.match(part) if start > 0 else None
            if label:
                yield self._said(number, part[label.end() :], _with_label(context, label))
            else:
                yield self._said(number, part, context)

    def _said(self, number: int, text: str, context: _Context) -> Said:
        assert self._clock is not None
        head = text[:_HEAD]
        when_ns = self._clock.read(head)
        nccl = _NCCL.search(head) if " NCCL " in head else None
        claim = context.claim or _server_claim(head)
        per_host = _PER_HOST.search(head) if self._layout().has_ranks_per_host else None
        # what NCCL calls a rank is the communicator's
        rank = None if per_host else _own_rank(head if nccl is None else head[:12], context.rank)
        pid = int(nccl["pid"]) if nccl else _own_pid(head)
        rank = rank if rank is not None else context.rank
        host = nccl["host"] if nccl else context.host
        pid = pid if pid is not None else context.pid
        line = LogLine(
            number=number,
            text=text,
            speaker=_speaker(context, rank, host, pid),
            rank=rank,
            local_rank=int(per_host["local"]) if per_host else context.local_rank,
            host=host,
            pid=pid,
            when_ns=when_ns if when_ns is not None else context.when_ns,
        )
        return Said(line=line, claim=claim)


def _of_owner(owner: Owner) -> _Context:
    return _Context(rank=owner.rank, local_rank=owner.local_rank, speaker=owner.name)


def _with_label(context: _Context, found: "re.Match[str]") -> _Context:
    """The inner label wins, except that it cannot take away what an outer one says and it does not."""
    fields = found.groupdict()
    if "file" in fields:
        return _of_owner(owner_of_path(found["file"]))
    name = fields.get("name") or ""
    axes = tuple((axis["axis"], int(axis["number"])) for axis in _GRID.finditer(name.replace("_", " ")))
    claim = context.claim
    if fields.get("task") is not None:
        claim = Claim(kind="task" if found.re is _TASK else "mpi", number=int(fields["task"] or 0))
    elif axes:
        claim = Claim(kind="grid", axes=axes)
    return _Context(
        rank=_number(fields.get("rank")) if fields.get("rank") else context.rank,
        local_rank=_number(fields.get("local")) if fields.get("local") else context.local_rank,
        host=fields.get("host") or context.host,
        pid=_number(fields.get("pid")) if fields.get("pid") else context.pid,
        when_ns=context.when_ns,
        claim=claim,
        speaker=context.speaker + found[0].strip(),
    )


def _own_rank(head: str, known: int | None) -> int | None:
    """The rank in the line's own words. `[Rank 0]` may be one inside a group: a label that is global counts more."""
    lower = head.lower()
    if "rank" not in lower:
        return None
    found = _RANK.search(head) or _DEFAULT_GROUP.search(head) or _LOGGED.search(head)
    if found:
        return known if known is not None and found[0].startswith("[Rank ") else int(found["rank"])
    self_named = _SELF.search(head)
    return int(next(filter(None, self_named.groups()))) if self_named else None


def _own_pid(head: str) -> int | None:
    found = _PID.search(head) if "[PID:" in head else _PYTHON_PID.match(head)
    return int(found[1]) if found else None


def _server_claim(head: str) -> Claim | None:
    found = _SERVER.match(head) if head.startswith("[2") else None
    if not found:
        return None
    axes = tuple((axis["axis"], int(axis["number"])) for axis in _GRID.finditer(found["axes"]))
    return Claim(kind="grid", axes=axes) if axes else None


def _speaker(context: _Context, rank: int | None, host: str | None, pid: int | None) -> str:
    """Labels that name a process are enough; else the rank or process in the line's own words."""
    if context.pid is not None or context.local_rank is not None:
        return context.speaker
    own = f"rank{rank}" if rank is not None else f"{host}:{pid}" if pid is not None else ""
    return context.speaker + own


def _is_only_clock(text: str) -> bool:
    return re.fullmatch(r"[\s\d:/.,TZ+\[\]-]{0,40}", text) is not None


def _number(text: "str | None") -> int | None:
    return int(text) if text and len(text) < 10 else None
