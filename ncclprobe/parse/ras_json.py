"""RAS reports as JSON, NCCL 2.28.7 and later.

In: text with documents in it. Out: `RasReport`s. All members of a communicator are there, each with its counts, in the
order of their ranks.
"""

from collections.abc import Iterator
from typing import Any

from ncclprobe.model.ras import RasCommunicator, RasRank, RasReport
from ncclprobe.parse import fields
from ncclprobe.parse.log.clock import first_dated_ns
from ncclprobe.parse.mended_json import Mended, documents
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

# ncclResult_t as RAS words it (client_support.cc); 7 is "in progress" and no error.
_RESULTS = {
    1: "Unhandled CUDA error",
    2: "System error",
    3: "Internal error",
    4: "Invalid argument",
    5: "Invalid usage",
    6: "Remote process error",
}
_IN_PROGRESS = 7
# What a text report calls the states, the gravest last: it gives that of the last.
STATUS_WORDS = {
    "missing": "NOCOMM",
    "init": "INIT",
    "running": "RUNNING",
    "finalize": "FINALIZE",
    "abort": "ABORT",
}
_ANSWERED = ("running", "init", "abort", "finalize")


def parse(text: str) -> Parsed[RasReport]:
    """All reports; a problem for each that was cut off, and for damaged members."""
    records, problems = [], []
    for mended in documents(text):
        if "communicators" in mended.value or "nccl_version" in mended.value:
            report, found = _report(mended)
            records.append(report)
            problems += found
    return Parsed(records=tuple(records), problems=tuple(problems))


def _report(mended: Mended) -> tuple[RasReport, list[str]]:
    document: dict[str, Any] = mended.value
    problems = ["the report is cut off: communicators or ranks may be missing"] if mended.is_cut else []
    listed = document.get("communicators")
    read = fields.read_all(listed if isinstance(listed, list) else [], "communicators", _communicator)
    problems += read.problems
    problems += [problem for _, damage in read.records for problem in damage]
    communicators = tuple(communicator for communicator, _ in read.records)
    members = [rank for communicator in communicators for rank in communicator.ranks]
    ras = document.get("ras")
    report = RasReport(
        nccl_version=_text(document, "nccl_version"),
        communicators=communicators,
        when_ns=first_dated_ns(_text(document, "timestamp")),
        silent=_processes(members, "unresponsive"),
        dead=_processes(members, "dead"),
        timeouts=_whole(ras.get("timeouts_count")) or 0 if isinstance(ras, dict) else 0,
    )
    return report, problems


def _communicator(values: dict[str, Any]) -> tuple[RasCommunicator, tuple[str, ...]]:
    present = fields.read_all(_list(values, "ranks"), "ranks", _present)
    missing = fields.read_all(_list(values, "missing_ranks"), "missing ranks", _missing)
    ranks = tuple(sorted((*present.records, *missing.records), key=lambda rank: rank.rank))
    communicator = RasCommunicator(
        id=f"0x{int(_text(values, 'hash') or '0', 16):x}",
        size=_whole(values.get("size")),
        ranks=ranks,
        status=_status(ranks),
        errors=",".join(_errors(ranks)) or "OK",
    )
    return communicator, present.problems + missing.problems


def _present(values: dict[str, Any]) -> RasRank:
    status = values["status"] if isinstance(values.get("status"), dict) else {}
    counts = values["collective_counts"] if isinstance(values.get("collective_counts"), dict) else {}
    whole = {clean(str(name), 40): _whole(count) for name, count in counts.items()}
    return _rank(
        values,
        state=_state(status) if status else None,
        error=_error(status),
        counts={name: count for name, count in whole.items() if count is not None},
    )


def _missing(values: dict[str, Any]) -> RasRank:
    status = values["status"] if isinstance(values.get("status"), dict) else {}
    state = "unresponsive" if status.get("unresponsive") is True else "missing"
    return _rank(values, state="dead" if status.get("considered_dead") is True else state)


def _rank(values: dict[str, Any], **more: Any) -> RasRank:
    host = _text(values, "host")
    return RasRank(
        rank=fields.required(values, "rank"),
        host=host if host not in ("", "unknown") else None,
        pid=_whole(values.get("pid")),
        cuda_device=_whole(values.get("cuda_dev")),
        nvml_device=_whole(values.get("nvml_dev")),
        **more,
    )


def _state(status: dict[str, Any]) -> str:
    if status.get("abort_flag") is True:
        return "abort"
    if status.get("finalize_called") is True or status.get("destroy_flag") is True:
        return "finalize"
    return "running" if status.get("init_state") == 0 else "init"


def _error(status: dict[str, Any]) -> str | None:
    said = []
    for key, kind in (("init_state", "Initialization"), ("async_error", "Asynchronous")):
        result = _whole(status.get(key))
        if result not in (None, 0, _IN_PROGRESS):
            said.append(f"{kind} error: {_RESULTS.get(result or 0, 'Unexpected error')}")
    return "; ".join(said) or None


def _status(ranks: tuple[RasRank, ...]) -> str:
    states = {rank.state for rank in ranks}
    return next((word for state, word in reversed(STATUS_WORDS.items()) if state in states), "")


def _errors(ranks: tuple[RasRank, ...]) -> Iterator[str]:
    """As a text report says it of the same communicator."""
    states = {rank.state for rank in ranks}
    answered = [rank for rank in ranks if rank.state in _ANSWERED]
    if states & {"unresponsive", "dead"}:
        yield "INCOMPLETE"
    if any(rank.error for rank in ranks):
        yield "ERROR"
    if len(states & STATUS_WORDS.keys()) > 1 or any(rank.counts != answered[0].counts for rank in answered):
        yield "MISMATCH"


def _processes(ranks: list[RasRank], state: str) -> tuple[tuple[str, int], ...]:
    found = {(rank.host, rank.pid) for rank in ranks if rank.state == state}
    return tuple(sorted((host, pid) for host, pid in found if host is not None and pid is not None))


def _list(values: dict[str, Any], key: str) -> list[Any]:
    value = values.get(key)
    return value if isinstance(value, list) else []


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    return clean(value, 200).strip() if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**62 else None
