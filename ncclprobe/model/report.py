"""The answer: causes, confidence, findings, the verdict and the whole report.

In: nothing. Out: the types a renderer prints and `--format json` dumps; the cause ids and the fields are a contract.
"""

from dataclasses import dataclass
from enum import Enum

from ncclprobe.model.evidence import Citation, Gap

SCHEMA_VERSION = "1"


class Cause(str, Enum):
    """Why a job stopped. The ids are printed in `verdict.cause` and never change their meaning."""

    COLLECTIVE_SKIPPED = "collective-skipped"
    COLLECTIVE_EXTRA = "collective-extra"
    COLLECTIVE_DESYNC = "collective-desync"
    COLLECTIVE_OP_MISMATCH = "collective-op-mismatch"
    COLLECTIVE_SHAPE_MISMATCH = "collective-shape-mismatch"
    GROUP_ORDER_DEADLOCK = "group-order-deadlock"
    P2P_MISMATCH = "p2p-mismatch"
    STUCK_IN_DATALOADER = "stuck-in-dataloader"
    STUCK_IN_CHECKPOINT = "stuck-in-checkpoint"
    STUCK_IN_PREPROCESSING = "stuck-in-preprocessing"
    STUCK_IN_EVALUATION = "stuck-in-evaluation"
    STUCK_IN_LOGGING = "stuck-in-logging"
    STUCK_IN_COMPILE = "stuck-in-compile"
    STUCK_ON_LOCK = "stuck-on-lock"
    STUCK_IN_PYTHON = "stuck-in-python"
    STUCK_IN_CUDA = "stuck-in-cuda"
    RANK_OOM_KILLED = "rank-oom-killed"
    RANK_CRASHED = "rank-crashed"
    RANK_EXITED = "rank-exited"
    HOST_UNREACHABLE = "host-unreachable"
    GPU_FAULT = "gpu-fault"
    NETWORK_FAULT = "network-fault"
    COLLECTIVE_STALLED = "collective-stalled"
    RANK_NEVER_JOINED = "rank-never-joined"
    INIT_MISCONFIGURED = "init-misconfigured"
    TIMEOUT_TOO_SHORT = "timeout-too-short"
    KNOWN_NCCL_BUG = "known-nccl-bug"
    PROGRESSING = "progressing"
    INCONCLUSIVE = "inconclusive"

    __str__ = str.__str__


class Confidence(str, Enum):
    """How sure a claim is; the criteria are in docs/explanation/verdicts.md."""

    POSSIBLE = "possible"
    PROBABLE = "probable"
    CERTAIN = "certain"

    __str__ = str.__str__

    @property
    def order(self) -> int:
        """0 for possible, 2 for certain."""
        return list(Confidence).index(self)


class Status(str, Enum):
    """How much of the asked-for evidence there was."""

    COMPLETE = "complete"
    PARTIAL = "partial"
    NO_EVIDENCE = "no-evidence"

    __str__ = str.__str__


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLocation:
    """The user's own line a rank is at. `condition` is the enclosing rank-dependent `if`, with its line."""

    rank: int
    file: str
    line: int | None
    function: str
    source_line: str | None = None
    condition: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockedOn:
    """The collective nobody can finish. `age_s`: since the first rank entered it; `timeout_s`: the watchdog's."""

    group: str
    seq: int | None
    op: str
    age_s: float | None = None
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A detector's claim: who, why, how sure, and the evidence for and against it."""

    cause: Cause
    summary: str
    guilty_ranks: tuple[int, ...]
    confidence: Confidence
    victims: tuple[int, ...] = ()
    blocked_on: BlockedOn | None = None
    where: tuple[CodeLocation, ...] = ()
    evidence: tuple[Citation, ...] = ()
    against: tuple[Citation, ...] = ()
    next_steps: tuple[str, ...] = ()
    fix: str = ""
    suspects: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The one answer. `summary` is a sentence of at most 200 characters; `victims` folded text such as `1-7`.

    `guilty_are`: what exactly the guilty ranks are together, such as `all ranks of host node3`.
    """

    cause: Cause
    summary: str
    guilty_ranks: tuple[int, ...]
    guilty_hosts: tuple[str, ...]
    victims: str
    confidence: Confidence
    blocked_on: BlockedOn | None
    where: tuple[CodeLocation, ...]
    evidence: tuple[Citation, ...]
    against: tuple[Citation, ...]
    next_steps: tuple[str, ...]
    fix: str
    guilty_are: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One rank in the report: where it runs and what it was seen doing."""

    rank: int
    host: str
    pid: int | None
    state: str | None
    doing: str
    last_seq: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupWait:
    """Members of a group that wait in one call, and whom they wait for (both folded; empty text where that is nobody).

    `hops`: 1 where they wait for a rank that the verdict names, 2 where for one that waits for such a rank, and so on;
    None where it does not lead to one. `seq` is None for sends and recvs.
    """

    ranks: str
    waits_for: str
    op: str
    seq: int | None
    hops: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """One process group in the report: its members (folded), how far they got, and who waits for whom."""

    name: str
    description: str
    ranks: str
    behind: str
    last_seq: int | None
    waits: tuple[GroupWait, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Something that happened. `when`: the hosts' own wall clock, `2026-09-01 05:20:03`, without a year if unknown.

    `ranks` is folded text; `host` empty where it is not known, or where several are meant.
    """

    when: str
    ranks: str
    host: str
    says: str
    artifact: str
    place: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReport:
    """One GPU: `state` is `spinning`, `idle`, `busy`, `lost` or `unknown`; `says` holds the figures it rests on."""

    host: str
    device: str
    rank: int | None
    state: str
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """What the answer rests on. `kinds` counts artifacts by kind; `ranks_missing` is folded text."""

    hosts_asked: int
    hosts_answered: int
    world_size: int | None
    ranks_found: int
    ranks_missing: str
    kinds: dict[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Everything a renderer needs."""

    schema_version: str
    status: Status
    verdict: Verdict
    findings: tuple[Finding, ...]
    ranks: tuple[RankState, ...]
    groups: tuple[GroupState, ...]
    gpus: tuple[GpuReport, ...]
    timeline: tuple[Moment, ...]
    gaps: tuple[Gap, ...]
    coverage: Coverage
