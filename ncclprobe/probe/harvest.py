"""What the sources of one host have found, on its way into the stream.

In: the messages of sources, which run in children and hand over bytes in files of the spool. Out: members of the
stream, gaps, and an outcome for each source, within the limits of what one host may send.
"""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.manifest import Outcome, SourceOutcome
from ncclprobe.probe.crew import Ending
from ncclprobe.probe.source import Collected, Context, Found, Source
from ncclprobe.probe.stream import TarStream
from ncclprobe.probe.worker import Message

ARTIFACT_LIMIT_BYTES = 64 << 20
HOST_LIMIT_BYTES = 1 << 30
MAX_ITEMS = 20_000
MAX_GAPS = 200


@dataclass(slots=True)
class Harvest:
    """Takes what comes and passes it on. `spool` is where sources put the bytes."""

    host: str
    stream: TarStream
    spool: Path
    outcomes: list[SourceOutcome] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    collected: list[Collected] = field(default_factory=list)
    _left_bytes: int = HOST_LIMIT_BYTES
    _is_full: bool = False
    _pauses_s: dict[str, float] = field(default_factory=dict)

    def take(self, source: str, message: Message) -> None:
        """One message of a source: a gap, or an artifact in the spool."""
        if "gap" in message:
            if len(self.gaps) < MAX_GAPS:
                self.gaps.append(Gap(**message["gap"]))
            return
        file, item = self.spool / message["spool"], message["artifact"]
        size_bytes = file.stat().st_size
        if size_bytes > self._left_bytes or len(self.collected) >= MAX_ITEMS:
            file.unlink()
            self._note_full(item["path"])
            return
        self._left_bytes -= size_bytes
        self._pauses_s[source] = max(self._pauses_s.get(source, 0.0), message["pause_s"])
        self.stream.add(file, size_bytes, item)
        self.collected.append(Collected(artifact=Artifact(**{**item, "kind": Kind(item["kind"])}), spool=file))

    def end(self, ending: Ending) -> None:
        """Notes how a source has ended."""
        if ending.outcome is not Outcome.COMPLETE:
            self.note_failure(ending)
        pause_s = self._pauses_s.get(ending.name, 0.0)
        self.outcomes.append(
            SourceOutcome(
                name=ending.name,
                outcome=ending.outcome,
                seconds=round(ending.seconds, 3),
                longest_pause_s=round(pause_s, 4),
            )
        )

    def note_failure(self, ending: Ending) -> None:
        """A source that timed out or failed is a gap, and a time-out is a finding."""
        last = next(
            (c.artifact.path for c in reversed(self.collected) if c.artifact.path.startswith(f"{ending.name}/")), None
        )
        what = f"{ending.name}: what comes after {last}" if last else f"nothing of {ending.name}"
        is_timed_out = ending.outcome is Outcome.TIMED_OUT
        action = "see the host's own dmesg: a driver or a file system may hang" if is_timed_out else "try again"
        self.gaps.append(Gap(who=self.host, what=what, why=ending.why, action=action))

    def _note_full(self, path: str) -> None:
        if not self._is_full:
            self._is_full = True
            why = f"a host may send {HOST_LIMIT_BYTES >> 20} MiB in {MAX_ITEMS} files"
            action = "leave out what is not needed (--no-stacks, --no-user-code)"
            self.gaps.append(Gap(who=self.host, what=f"{path} and maybe others", why=why, action=action))


def messages(source: Source, context: Context, spool: Path) -> Iterator[Message]:
    """What a source yields, as messages; runs in the source's own process."""
    for number, item in enumerate(source.collect(context)):
        if isinstance(item, Gap):
            yield {"gap": asdict(item)}
            continue
        name = f"{source.name}-{number}"
        (spool / name).write_bytes(item.data[:ARTIFACT_LIMIT_BYTES])
        yield {"spool": name, "artifact": asdict(_artifact(source, item, context.host)), "pause_s": item.pause_s}


def _artifact(source: Source, item: Found, host: str) -> Artifact:
    return Artifact(
        path=f"{source.name}/{item.file}",
        kind=item.kind,
        host=host,
        origin=item.origin,
        rank=item.rank,
        pid=item.pid,
        look=item.look,
        start_ns=item.start_ns,
        end_ns=item.end_ns,
        exit_status=item.exit_status,
        truncated=item.truncated or len(item.data) > ARTIFACT_LIMIT_BYTES,
    )
