"""Work that takes longer than the others wait, under gloo, whose ranks only raise when they give up."""

from pathlib import Path

from ncclprobe.model.report import Confidence
from tests.log_text import dated, report_on, traceback

GAVE_UP = (
    "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting {}ms for recv operation to complete"
)
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:45732."
EXITS = (
    "E1129 22:18:13.2 25048 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: 1) "
    "local_rank: 2 (pid: 25070) of binary: python\n"
)


def shards(last: int, seconds_each: float) -> str:
    lines = (
        f"{dated(5 + number * seconds_each)} INFO saving checkpoint: shard {number}/16 written\n"
        for number in range(1, last + 1)
    )
    return "step 20 loss 0.5\n" + "".join(lines)


def files(work: str, limit_ms: int = 5000, first: str = "") -> dict[str, str]:
    """Rank 0 at work, then told that its peers are gone; rank 1 and rank 2 gave up, or fail by themselves."""
    gave_up = GAVE_UP.format(limit_ms)
    return {
        "rank0.log": work + traceback(0, LOST, line=48),
        "rank1.log": "step 20 loss 0.5\n" + traceback(1, gave_up),
        "rank2.log": "step 20 loss 0.5\n" + (first or traceback(2, gave_up)),
        "launcher.log": EXITS,
    }


def verdict(tmp_path: Path, given: dict[str, str]) -> tuple[str, tuple[int, ...]]:
    for name, text in given.items():
        (tmp_path / name).write_text(text)
    report = report_on(tmp_path)
    return str(report.verdict.cause), report.verdict.guilty_ranks


def test_counted_work_that_outlasts_the_timeout(tmp_path: Path) -> None:
    for name, text in files(shards(16, 0.5)).items():
        (tmp_path / name).write_text(text)
    found = report_on(tmp_path).verdict
    assert (str(found.cause), found.guilty_ranks, found.victims) == ("timeout-too-short", (0,), "1-2")
    assert found.confidence is Confidence.PROBABLE
    assert found.blocked_on
    assert found.blocked_on.timeout_s == 5
    assert [where.line for where in found.where] == [28]


def test_a_peer_that_lost_the_connection_first_waited_too(tmp_path: Path) -> None:
    assert verdict(tmp_path, files(shards(16, 0.5), first=traceback(2, LOST))) == ("timeout-too-short", (0,))


def test_work_that_stopped_before_the_timeout_is_not_only_slow(tmp_path: Path) -> None:
    assert verdict(tmp_path, files(shards(4, 0.5)))[0] != "timeout-too-short"


def test_the_default_timeout_is_not_short(tmp_path: Path) -> None:
    given = files(shards(16, 0.5) + shards(16, 200), limit_ms=1_800_000)
    assert verdict(tmp_path, given)[0] != "timeout-too-short"


def test_a_rank_that_failed_by_itself_is_what_the_others_gave_up_for(tmp_path: Path) -> None:
    given = files(shards(16, 0.5), first=traceback(2, "ValueError: bad batch"))
    assert verdict(tmp_path, given) == ("rank-crashed", (2,))


def test_the_exit_of_a_rank_that_gave_up_is_no_failure_of_its_own(tmp_path: Path) -> None:
    cause, guilty = verdict(tmp_path, files("step 20 loss 0.5\n"))
    assert (cause, guilty) != ("rank-crashed", (2,))
    assert not {1, 2} & set(guilty)
