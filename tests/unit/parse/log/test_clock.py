"""Times of lines, in the forms loggers print."""

from datetime import datetime, timezone

import pytest

from ncclprobe.parse.log.clock import Clock, first_dated_ns


def ns(text: str, part: int = 0) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=timezone.utc).timestamp()) * 10**9 + part


@pytest.mark.parametrize(
    ("text", "when_ns"),
    [
        ("2026-09-14 06:00:10 [rank 0] INFO x", ns("2026-09-14T06:00:10")),
        ("2026-09-14 06:00:10,981 - root - INFO", ns("2026-09-14T06:00:10", 981_000_000)),
        ("2026-09-14T06:00:10.5 x", ns("2026-09-14T06:00:10", 500_000_000)),
        ("[2026-09-01 05:10:02,981] [INFO] [comm.py:1]", ns("2026-09-01T05:10:02", 981_000_000)),
        ("2026/08/05 11:22:10.100 x", ns("2026-08-05T11:22:10", 100_000_000)),
        ("02/03/2026 10:00:10 - INFO", ns("2026-02-03T10:00:10")),
        ("23/03/2026 10:00:10 - INFO", ns("2026-03-23T10:00:10")),
        ("[05/20/26 11:22:10] INFO", ns("2026-05-20T11:22:10")),
        ("time      : 2026-01-18_03:41:16", ns("2026-01-18T03:41:16")),
        ("node01 Tue May  5 20:41:11 CEST 2026", ns("2026-05-05T20:41:11")),
        ("Tue May  5 20:41:11 2026 x", ns("2026-05-05T20:41:11")),
        ("2026-05-05T20:41:11Z x", ns("2026-05-05T20:41:11")),
        ("2026-05-05T20:41:11.25+02:00 x", ns("2026-05-05T18:41:11", 250_000_000)),
        ("2026-05-05 20:41:11 -0530 x", ns("2026-05-06T02:11:11")),
        ("[2026-05-02 09:13:00 DP0 TP3] Load", ns("2026-05-02T09:13:00")),
    ],
)
def test_times_with_a_year(text: str, when_ns: int) -> None:
    assert Clock().read(text) == when_ns


@pytest.mark.parametrize(
    ("text", "when_ns"),
    [
        ("[rank3]:[E901 05:20:03.011971373 ProcessGroupNCCL.cpp:632]", ns("2026-09-01T05:20:03", 11_971_373)),
        ("[E1119 07:34:57.460801783 x.cpp:1]", ns("2026-11-19T07:34:57", 460_801_783)),
        ("E0330 16:20:47.419000 123 site-packages/x.py:8]", ns("2026-03-30T16:20:47", 419_000_000)),
        ("INFO 05-20 11:22:10 [loggers.py:9]", ns("2026-05-20T11:22:10")),
        ("10/06 15:26:27 - mmengine - INFO", ns("2026-10-06T15:26:27")),
        ("Nov 29 16:39:46 node02 kernel: x", ns("2026-11-29T16:39:46")),
    ],
)
def test_times_without_a_year_take_the_nearest(text: str, when_ns: int) -> None:
    assert Clock(ns("2026-07-01T00:00:00")).read(text) == when_ns
    assert Clock().read(text) == when_ns - ns("2026-01-01T00:00:00") + 0 * when_ns  # 1970 is no leap year either


def test_a_year_ends_between_two_lines() -> None:
    clock = Clock()
    assert clock.read("2026-12-31 23:59:50 step") == ns("2026-12-31T23:59:50")
    assert clock.read("[rank0]:[E101 00:10:00.000000001 x.cpp:1] ") == ns("2027-01-01T00:10:00", 1)
    assert clock.read("[rank0]:[E1231 23:59:59.000000001 x.cpp:1] ") == ns("2026-12-31T23:59:59", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "32batch [00:03, 9.98batch/s]",
        "eta: 9:58:12, time: 0.431",
        "2026-13-45 99:99:99",
        "E9999 05:20:03.01",
        "a 1:2:3",
    ],
)
def test_no_time(text: str) -> None:
    assert Clock().read(text) is None


def test_a_bar_in_front_of_the_time_is_no_time() -> None:
    text = "bar [1:00:03, 9.98batch/s] 2026-05-05 20:41:11 x"
    assert Clock().read(text) == ns("2026-05-05T20:41:11")


def test_the_first_dated_line_of_a_sample() -> None:
    assert first_dated_ns("x\n2026-99-99 10:00:00\n2026-05-05 20:41:11\n") == ns("2026-05-05T20:41:11")
    assert first_dated_ns("[E901 05:20:03.01 x]") is None
