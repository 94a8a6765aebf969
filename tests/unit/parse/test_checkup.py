"""A host's checkup is read as if an enemy had written it."""

import json
from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ncclprobe.model.checkup import Check, CheckState, Place, RankSettings
from ncclprobe.model.errors import ParseError
from ncclprobe.parse.checkup import parse

CHECK = Check(name="stacks", state=CheckState.BLOCKED, what="w", action="a", ranks=(0, 3))
PLACE = Place(path="/d", is_there=True, is_writable=True, file_system="nfs4", free_bytes=0)
RANK = RankSettings(
    host="n", rank=0, pid=7, command="c", variables={"A": "b"}, torch=(2, 13, 0), nccl=None, dumps=PLACE, pipes=None
)
DATA = json.dumps({"checks": [asdict(CHECK)], "ranks": [asdict(RANK)]}).encode()


def test_it_comes_back_as_it_was() -> None:
    assert parse(DATA).records == (CHECK, RANK)


@pytest.mark.parametrize(
    "damage",
    [
        {"checks": [asdict(CHECK), {"name": 1}, None, {"name": "x", "state": "fine"}], "ranks": [asdict(RANK)]},
        {"checks": [asdict(CHECK)], "ranks": [asdict(RANK), {"host": "n", "rank": -1}, []]},
        {"checks": [asdict(CHECK)], "ranks": [asdict(RANK), {"host": "n", "variables": {"A": 1}}, {"dumps": "x"}]},
    ],
)
def test_what_is_damaged_is_a_problem_and_the_rest_stays(damage: object) -> None:
    parsed = parse(json.dumps(damage).encode())
    assert parsed.records == (CHECK, RANK)
    assert len(parsed.problems) == 1


def test_nothing_a_terminal_would_obey_gets_through() -> None:
    hostile = {"checks": [{**asdict(CHECK), "what": "\x1b[31mred\n"}], "ranks": []}
    (check,) = parse(json.dumps(hostile).encode()).records
    assert isinstance(check, Check)
    assert check.what.isprintable()


@given(st.binary(max_size=40), st.integers(0, len(DATA)), st.integers(0, 40))
def test_mutations_raise_nothing_else(noise: bytes, place: int, cut: int) -> None:
    with suppress(ParseError):
        parse(DATA[:place] + noise + DATA[place + cut :])
