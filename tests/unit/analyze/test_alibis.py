"""Ranks that wait in the same call as others are not those that are waited for."""

from pathlib import Path

import pytest

from tests.log_text import report_on, timeout, timeouts, traceback

WORLD = "world_size=4\n"


def test_what_a_waiting_rank_raised_before_was_handled(tmp_path: Path) -> None:
    log = WORLD + traceback(1, "ValueError: bad row") + timeouts((0, 1, 3), 50)
    verdict = report_on(tmp_path, train_log=log).verdict
    assert (str(verdict.cause), verdict.guilty_ranks) == ("inconclusive", ())


@pytest.mark.parametrize("error", ["RuntimeError: CUDA error: an illegal memory access was encountered"])
def test_an_error_of_the_gpu_stays(tmp_path: Path, error: str) -> None:
    log = WORLD + traceback(1, error) + timeouts((0, 1, 3), 50)
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == (1,)


def test_not_in_another_call(tmp_path: Path) -> None:
    log = WORLD + traceback(1, "ValueError: bad row") + timeouts((0, 3), 50) + timeout(1, 49, "BROADCAST", 8)
    assert report_on(tmp_path, train_log=log).verdict.guilty_ranks == (1,)


def test_nor_where_all_wait_in_the_call(tmp_path: Path) -> None:
    log = WORLD + traceback(1, "ValueError: bad row") + timeouts(range(4), 50)
    verdict = report_on(tmp_path, train_log=log).verdict
    assert (str(verdict.cause), verdict.guilty_ranks) == ("collective-stalled", ())
