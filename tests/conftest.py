"""Options and rules of the whole suite."""

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew instead of comparing")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):  # type: ignore[no-untyped-def]
    """In CI an end-to-end test that is skipped is a failure: what it needs must have been installed."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and os.environ.get("CI") == "true" and item.get_closest_marker("e2e"):
        report.outcome = "failed"
        report.longrepr = f"skipped, but CI must run it: {call.excinfo.value if call.excinfo else ''}"
