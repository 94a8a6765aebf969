"""Fields of our own JSON have the type they should have, or are damage."""

from typing import Any

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.parse import fields


def test_absent_and_null_are_unknown() -> None:
    for item in ({}, {"a": None}):
        assert fields.text(item, "a") == ""
        assert fields.whole(item, "a") is None
        assert fields.number(item, "a") is None
        assert fields.flag(item, "a") is None
        assert fields.wholes(item, "a") == ()
        with pytest.raises(ValueError, match="a is not a whole number"):
            fields.required(item, "a")


def test_zero_and_false_are_values() -> None:
    assert fields.whole({"a": 0}, "a") == 0
    assert fields.number({"a": 0}, "a") == 0.0
    assert fields.flag({"a": False}, "a") is False
    assert fields.wholes({"a": [0, 2]}, "a") == (0, 2)


@pytest.mark.parametrize("value", [True, -1, 1.0, "1", 1 << 62, [1]])
def test_what_is_no_whole_number(value: object) -> None:
    with pytest.raises(ValueError, match="not a whole number"):
        fields.whole({"a": value}, "a")


@pytest.mark.parametrize("value", [True, float("nan"), float("inf"), "1", 1e300])
def test_what_is_no_number(value: object) -> None:
    with pytest.raises(ValueError, match="not a number"):
        fields.number({"a": value}, "a")


def test_text_is_text_and_fit_to_show() -> None:
    assert fields.text({"a": "x\x1b" * 100}, "a", 3) == "x\ufffdx"
    with pytest.raises(ValueError, match="not text"):
        fields.text({"a": 1}, "a")


def _read(element: dict[str, Any]) -> int:
    return fields.required(element, "n")


def test_damaged_records_are_one_problem() -> None:
    parsed = fields.records(b'{"xs": [{"n": 1}, {"n": "2"}, 3, null, {"n": 4}]}', "xs", _read)
    assert parsed.records == (1, 4)
    (problem,) = parsed.problems
    assert problem.startswith("3 of 5 xs are damaged and were left out")
    assert "number 1" in problem


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b'{"xs": 1}', b"[" * 100_000, b"\xff\xfe\x00", b"nul"])
def test_what_is_no_such_list(data: bytes) -> None:
    with pytest.raises(ParseError):
        fields.records(data, "xs", _read)


def test_a_flood_is_refused() -> None:
    with pytest.raises(ParseError, match="100001 xs are more than any host has"):
        fields.records(b'{"xs": [' + b"1," * 100_000 + b"1]}", "xs", _read)
