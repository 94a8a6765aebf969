"""What makes two sequences go on alike."""

import pytest

from ncclprobe.analyze.realign import Change, Kind, find_changes


@pytest.mark.parametrize(
    ("most", "few", "first"),
    [
        ("BCDE", "XBCDE", Change(kind=Kind.ADDED, agreeing=4, shift=1)),
        ("ABCDE", "BCDE", Change(kind=Kind.LEFT_OUT, agreeing=4, shift=1)),
        ("ABCDEF", "CDEF", Change(kind=Kind.LEFT_OUT, agreeing=4, shift=2)),
        ("ABCD", "BACD", Change(kind=Kind.SWAPPED, agreeing=2)),
        ("ABCD", "XBCD", Change(kind=Kind.REPLACED, agreeing=3)),
    ],
)
def test_the_change_that_explains_all_that_follows(most: str, few: str, first: Change) -> None:
    assert find_changes(list(most), list(few))[0] == first


def test_of_two_that_fit_the_count_decides() -> None:
    kinds = [change.kind for change in find_changes(list("ABA"), list("BA"))]
    assert kinds == [Kind.LEFT_OUT, Kind.SWAPPED]
    assert find_changes(list("AB"), list("BA"))[0].kind is Kind.SWAPPED


def test_where_later_calls_may_be_missing_the_count_tells_nothing() -> None:
    assert find_changes(list("ABA"), list("BA"), is_count_known=False)[0].kind is Kind.SWAPPED


@pytest.mark.parametrize(("most", "few"), [("ABC", "XYZ"), ("A", "B"), ("", "A"), ("ABC", "B")])
def test_nothing_fits(most: str, few: str) -> None:
    assert find_changes(list(most), list(few)) == []
