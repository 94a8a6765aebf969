"""Whether a moment has to do with a hang that a watchdog timed."""

from datetime import datetime, timezone

import pytest

from ncclprobe.analyze.onset import Nearness, Onset, nearness

SECOND = 1_000_000_000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()) * SECOND


HANG = Onset(began_ns=at("2026-03-02 06:20:40"), ended_ns=at("2026-03-02 06:30:40"))


@pytest.mark.parametrize(
    ("when", "expected"),
    [
        ("2026-03-02 06:20:38", Nearness.CLOSE),
        ("2026-03-02 06:21:30", Nearness.CLOSE),
        ("2026-03-02 06:10:00", Nearness.NEAR),
        ("2026-03-02 06:28:00", Nearness.NEAR),
        ("2026-03-02 07:20:38", Nearness.SHIFTED),
        ("2026-03-01 23:50:38", Nearness.SHIFTED),
        ("2026-03-02 01:12:00", Nearness.FAR),
        ("2026-03-02 06:52:40", Nearness.FAR),
        ("2026-02-21 11:02:40", Nearness.FAR),
    ],
)
def test_how_near_a_moment_is(when: str, expected: Nearness) -> None:
    assert nearness(at(when), HANG) is expected


def test_a_log_without_a_year_is_of_the_others_year() -> None:
    undated = Onset(began_ns=at("1970-01-01 00:00:20"), ended_ns=at("1970-01-01 00:10:20"))
    assert nearness(at("2026-12-31 23:59:50"), undated) is Nearness.CLOSE
    assert nearness(at("1970-03-02 06:20:38"), HANG) is Nearness.CLOSE


def test_a_leap_day_has_a_place_in_any_year() -> None:
    undated = Onset(began_ns=at("1970-03-01 00:00:00"), ended_ns=at("1970-03-01 00:10:00"))
    assert nearness(at("2028-02-29 23:59:30"), undated) is Nearness.CLOSE


def test_without_a_time_nothing_is_known() -> None:
    assert nearness(None, HANG) is Nearness.UNKNOWN
    assert nearness(at("2026-03-02 06:20:38"), None) is Nearness.UNKNOWN
