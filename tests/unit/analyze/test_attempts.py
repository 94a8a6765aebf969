"""Only the last attempt of a job counts."""

from ncclprobe.analyze.attempts import last_attempt
from ncclprobe.model.evidence import Artifact, Gap, Kind
from ncclprobe.model.log import Died, LogEvent, LogFact, Restarted, WorldSize
from ncclprobe.model.records import Sourced

Said = Sourced[LogEvent]
DIED = Died(exit_status=1)


def said(path: str, line: int, what: LogFact = DIED, when_s: int | None = None) -> Said:
    when_ns = None if when_s is None else when_s * 1_000_000_000
    event = LogEvent(line=line, quote="q", what=what, when_ns=when_ns)
    return Sourced(Artifact(path=path, kind=Kind.RANK_LOG, host="", origin=""), event)


def test_what_comes_before_the_restart_in_its_file_is_past() -> None:
    before, after, restart = said("a", 1), said("a", 9), said("a", 5, Restarted())
    assert last_attempt([before, restart, after]) == [restart, after]


def test_of_other_files_the_clock_tells() -> None:
    restart = said("agent", 5, Restarted(), when_s=100)
    before, after, timeless = said("a", 1, when_s=90), said("a", 2, when_s=110), said("a", 3)
    assert last_attempt([restart, before, after, timeless]) == [restart, after, timeless]


def test_settings_outlive_a_restart() -> None:
    size = said("a", 1, WorldSize(size=4))
    assert size in last_attempt([size, said("a", 5, Restarted())])


def test_directories_of_attempts() -> None:
    first, second = said("r/attempt_0/0/stderr.log", 1), said("r/attempt_1/2/stderr.log", 1)
    assert last_attempt([first, second]) == [second]
    gap = Gap(who="r/attempt_1/0/stderr.log", what="it says nothing", why="it is empty", action="nothing")
    assert last_attempt([first], [gap]) == []
