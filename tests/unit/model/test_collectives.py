"""Values that thousands of ranks share."""

import pickle
from dataclasses import replace

import pytest

from ncclprobe.model.collectives import ProcessGroup, Signature
from ncclprobe.model.frames import Frame

VALUES = [
    ProcessGroup(name="7", description="tp", ranks=(0, 1)),
    Signature("all_reduce", ((2, 3),), ((2, 3),), ("Float",), ("Float",)),
    Frame("step", "/home/user/train.py", 3),
    Frame("step", "/home/user/train.py"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_comes_from_other_processes_is_kept_once(value: object) -> None:
    copies = [pickle.loads(pickle.dumps(value)) for _ in range(2)]
    assert copies[0] == value
    assert repr(copies[0]) == repr(value)
    assert copies[0] is copies[1]


def test_ranks_of_a_group_are_a_tuple_for_all_purposes() -> None:
    group = ProcessGroup(name="0", ranks=(0, 1))
    assert group.ranks == (0, 1)
    assert hash(group.ranks) == hash((0, 1))
    assert {group.ranks: 1, (0, 1): 2} == {(0, 1): 2}
    assert replace(group, ranks=(1, 2)).ranks == (1, 2)
    assert f"{group.ranks}" == "(0, 1)"
    assert group == ProcessGroup(name="0", ranks=(0, 1))
