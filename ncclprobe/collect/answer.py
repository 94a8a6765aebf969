"""One host's answer: what its probe sends, taken apart as it comes.

In: a `RemoteProcess` at work. Out: artifacts in the bundle, and an `Answer` that says how the host ended. All of it
comes from a host and is checked before it is used.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, BinaryIO, cast

from ncclprobe.bundle.tarstream import DamagedError, Member, TarStream
from ncclprobe.bundle.writer import BundleWriter
from ncclprobe.collect.incoming import Incoming
from ncclprobe.collect.kit import NO_PYTHON_STATUS
from ncclprobe.collect.transport import HostError, RemoteProcess
from ncclprobe.model.errors import BundleError
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.job import JobKey
from ncclprobe.model.manifest import HostOutcome, Outcome, SourceOutcome
from ncclprobe.parse import fields
from ncclprobe.probe.stream import HELLO_NAME, HOST_NAME, ITEM_NAME

_MAX_DOCUMENT_BYTES = 4 << 20
_MAX_GAPS, _MAX_SOURCES, _MAX_JOBS = 500, 64, 64


@dataclass(slots=True)
class Answer:
    """What one host said. `jobs`: those that may be meant, where it could not tell; `others`: what else runs."""

    host: str
    address: str
    clock_offset_ns: int | None = None
    python: str | None = None
    job: JobKey | None = None
    jobs: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    sources: tuple[SourceOutcome, ...] = ()
    gaps: list[Gap] = field(default_factory=list)
    is_whole: bool = False
    is_silent: bool = False
    artifact_count: int = 0

    @property
    def outcome(self) -> HostOutcome:
        """The host's part of the manifest."""
        return HostOutcome(
            name=self.host,
            address=self.address,
            outcome=self._grade(),
            clock_offset_ns=self.clock_offset_ns,
            python=self.python,
            sources=self.sources,
            gaps=tuple(self.gaps),
        )

    def _grade(self) -> Outcome:
        if not self.is_whole:
            nothing = Outcome.TIMED_OUT if self.is_silent else Outcome.FAILED
            return Outcome.PARTIAL if self.artifact_count else nothing
        is_complete = all(source.outcome is Outcome.COMPLETE for source in self.sources)
        return Outcome.COMPLETE if is_complete else Outcome.PARTIAL

    def add_gap(self, what: str, why: str, action: str) -> None:
        """One thing this host did not give."""
        self.gaps.append(Gap(who=self.host, what=what, why=why, action=action))


def read_answer(process: RemoteProcess, answer: Answer, writer: BundleWriter) -> None:
    """Reads to the end of the stream; what came whole before it breaks off is kept, the rest is one gap."""
    incoming = Incoming(process)
    try:
        if incoming.skip_to_start():
            _take_members(TarStream(cast("BinaryIO", incoming), incoming.limits), answer, writer)
            problem = "" if answer.is_whole else "it ended without saying so"
        else:
            problem = "it never started"
    except (HostError, BundleError) as error:
        answer.add_gap(_missing(answer), str(error), error.advice)
    except DamagedError as error:
        _explain_end(process, answer, incoming, f"the stream {error}")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        why = f"it sends what no probe sends: {_clean(str(error), 160)}"
        answer.add_gap(_missing(answer), why, "see whether something on the host changes the output of commands")
    else:
        if problem:
            _explain_end(process, answer, incoming, problem)


def _take_members(stream: TarStream, answer: Answer, writer: BundleWriter) -> None:
    artifact: Artifact | None = None
    for member in stream.members():
        if artifact is not None:
            writer.add(artifact, stream.data())
            answer.artifact_count += 1
            artifact = None
            continue
        document = _document(stream, member)
        if member.name == ITEM_NAME:
            artifact = _artifact(document, answer.host)
        elif member.name == HELLO_NAME:
            answer.clock_offset_ns = fields.required(document, "time_ns") - time.time_ns()
        elif member.name == HOST_NAME:
            _take_summary(document, answer)
            return  # the last member, whatever follows


def _document(stream: TarStream, member: Member) -> dict[str, Any]:
    if member.kind != "file" or member.size_bytes > _MAX_DOCUMENT_BYTES:
        raise ValueError(f"an unexpected {member.kind} {member.name[:80]!r} of {member.size_bytes} bytes")
    document = json.loads(b"".join(stream.data()))
    if not isinstance(document, dict):
        raise ValueError(f"{member.name[:80]!r} is no object")
    return document


def _artifact(item: dict[str, Any], host: str) -> Artifact:
    return Artifact(
        path=fields.text(item, "path"),
        kind=Kind(item.get("kind")),
        host=host,
        origin=_clean(fields.text(item, "origin")),
        rank=fields.whole(item, "rank"),
        pid=fields.whole(item, "pid"),
        look=fields.whole(item, "look"),
        start_ns=fields.whole(item, "start_ns"),
        end_ns=fields.whole(item, "end_ns"),
        exit_status=item["exit_status"] if type(item.get("exit_status")) is int else None,
        truncated=item.get("truncated") is True,
    )


def _take_summary(document: dict[str, Any], answer: Answer) -> None:
    answer.python = _clean(fields.text(document, "python", 32)) or None
    answer.jobs = _names(document, "jobs")
    answer.others = _names(document, "others")
    job = document.get("job")
    if isinstance(job, dict):
        parts = {name: _clean(fields.text(job, name)) for name in ("run_id", "master", "scheduler_id")}
        answer.job = JobKey(**parts)
    answer.sources = tuple(_sources(document))
    answer.gaps += list(_gaps(document))
    answer.is_whole = True


def _names(document: dict[str, Any], key: str) -> tuple[str, ...]:
    return tuple(_clean(str(name), 200) for name in islice(document.get(key, ()), _MAX_JOBS))


def _sources(document: dict[str, Any]) -> Iterator[SourceOutcome]:
    for item in islice(document.get("sources", ()), _MAX_SOURCES):
        yield SourceOutcome(
            name=_clean(fields.text(item, "name", 64)),
            outcome=Outcome(item["outcome"]),
            seconds=fields.number(item, "seconds") or 0.0,
            longest_pause_s=fields.number(item, "longest_pause_s"),
        )


def _gaps(document: dict[str, Any]) -> Iterator[Gap]:
    for item in islice(document.get("gaps", ()), _MAX_GAPS):
        yield Gap(**{name: _clean(fields.text(item, name, 500)) for name in ("who", "what", "why", "action")})


def _explain_end(process: RemoteProcess, answer: Answer, incoming: Incoming, why: str) -> None:
    """The stream ended too soon: the exit status and the error output say more than the broken archive does."""
    try:
        status, error_text = process.finish()
    except HostError as error:
        answer.add_gap(_missing(answer), str(error), error.advice)
        return
    said = next((line for line in reversed(error_text.splitlines()) if line.strip()), "")
    if status == NO_PYTHON_STATUS:
        action = "install python3 there, or run a rank under one"
        answer.add_gap(_missing(answer), "it has no Python 3.10 or newer", action)
    elif incoming.has_started:
        why = f"the connection or the probe broke off after {incoming.size_bytes} bytes ({_clean(said, 120) or why})"
        answer.add_gap(_missing(answer), why, "collect again; what came whole is kept")
    else:
        said = _clean(said or incoming.preamble.decode("utf-8", "replace"), 160).strip() or "no output"
        why = f"the probe did not start there (exit status {status}): {said}"
        answer.add_gap(_missing(answer), why, "log in to the host by hand and see what its shell prints")


def _missing(answer: Answer) -> str:
    return "the rest of its evidence" if answer.artifact_count else "no evidence from this host"


def _clean(text: str, limit: int = 4_096) -> str:
    """Nothing that a terminal would obey: text from a host ends up in messages and in the report."""
    return "".join(character if character.isprintable() else " " for character in text[:limit])
