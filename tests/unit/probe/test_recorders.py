"""Empty recorders beside filled ones."""

import json
import pickle
from collections.abc import Callable

import pytest

from ncclprobe.probe.recorders import with_entries

FILLED = {"entries": [{"profiling_name": "gloo:all_reduce"}]}
EMPTY: dict[str, list[object]] = {"entries": []}


def as_json(dump: object) -> bytes:
    return json.dumps(dump).encode()


@pytest.mark.parametrize("write", [pickle.dumps, as_json])
def test_an_empty_recorder_beside_a_filled_one_is_left_out(write: Callable[[object], bytes]) -> None:
    filled, empty = write(FILLED), write(EMPTY)
    assert with_entries({"nccl": empty, "other": filled}) == {"other": filled}
    assert with_entries({"nccl": filled, "other": filled}) == {"nccl": filled, "other": filled}


def test_recorders_that_are_all_empty_are_kept() -> None:
    dumps = {"nccl": pickle.dumps(EMPTY), "other": pickle.dumps(EMPTY)}
    assert with_entries(dumps) == dumps
