"""Lines of logs as torch, NCCL and launchers write them, for tests of what follows from them.

In: ranks, calls, times. Out: text. Wording of torch 2.6 to 2.13 unless a function says otherwise.
"""

from collections.abc import Iterable
from pathlib import Path

from ncclprobe import workflow
from ncclprobe.model.report import Report


def clock(second: float) -> str:
    """Seconds after 10:00 on 1 September as torch prints them: month and day, then the time."""
    whole = int(second)
    return f"901 {10 + whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{int(second % 1 * 1e9):09}"


def dated(second: float) -> str:
    """The same as a logger prints it."""
    whole = int(second)
    return f"2026-09-01 {10 + whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02},000"


def timeout(
    rank: int,
    seq: int,
    op: str = "ALLREDUCE",
    size: int = 1024,
    *,
    out: int | None = None,
    at: float = 600,
    enqueued: int | None = None,
    limit_ms: int = 600_000,
) -> str:
    """A watchdog that gives up, and the counters it prints."""
    prefix = f"[rank{rank}]:[E{clock(at)} ProcessGroupNCCL.cpp"
    work = (
        f"WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={size}, NumelOut={size if out is None else out}, "
        f"Timeout(ms)={limit_ms})"
    )
    return (
        f"{prefix}:632] [Rank {rank}] Watchdog caught collective operation timeout: {work} ran for {limit_ms + 20} "
        "milliseconds before timing out.\n"
        f"{prefix}:2271] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure detected by watchdog at work sequence "
        f"id: {seq} PG status: last enqueued work: {enqueued or seq}, last completed work: {seq - 1}\n"
    )


def timeouts(ranks: Iterable[int], seq: int, op: str = "ALLREDUCE", size: int = 1024, **more: float) -> str:
    """The same from several ranks."""
    return "".join(timeout(rank, seq, op, size, **more) for rank in ranks)  # type: ignore[arg-type]


def answer(rank: int, enqueued: int, *, asked_by: int, at: float = 601) -> str:
    """A rank that waits in nothing is told to dump and prints its counters."""
    return (
        f"[rank{rank}]:[E{clock(at)} ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank {rank}] Received a "
        f"dump signal due to a collective timeout from  rank {asked_by} and we will try our best to dump the debug "
        f"info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {enqueued}.This is most likely caused "
        "by incorrect usages of collectives.\n"
    )


def traceback(rank: int, error: str, *, file: str = "/app/train.py", line: int = 41) -> str:
    """What an exception prints, behind the launcher's prefix."""
    lines = (
        "Traceback (most recent call last):",
        f'  File "{file}", line {line}, in <module>',
        "    main()",
        f'  File "{file}", line {line - 20}, in main',
        "    step(batch)",
        error,
    )
    return "".join(f"[rank{rank}]: {text}\n" for text in lines)


def says(rank: int, text: str, at: float = 0) -> str:
    """A line of the program's own logger."""
    return f"{dated(at)} [rank {rank}] INFO {text}\n"


def init(rank: int, size: int, *, host: str = "node1", is_complete: bool = True, comm_id: str = "0xabc1") -> str:
    """NCCL's lines of a communicator."""
    pid, device = 1000 + rank, rank % 8
    line = (
        f"{host}:{pid}:{pid + 500} [{device}] NCCL INFO ncclCommInitRank comm 0x55{rank:06x} rank {rank} nranks {size} "
        f"cudaDev {device} nvmlDev {device} busId {(device + 1) * 0x10:x}000 commId {comm_id} - Init "
    )
    return f"{line}START\n" + (f"{line}COMPLETE\n" if is_complete else "")


def warn(rank: int, text: str, *, host: str = "node1") -> str:
    """A warning of NCCL, with the blank line that comes before it."""
    return f"\n{host}:{1000 + rank}:{1500 + rank} [{rank % 8}] transport/net_ib.cc:148 NCCL WARN {text}\n"


def report_on(folder: Path, **files: str) -> Report:
    """The report on files with these names (`train_log` is `train.log`) and texts."""
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    return workflow.analyze(folder)
