"""Headings that give a part of a log to a rank."""

import pytest

from ncclprobe.parse.log.sections import Owner, Sections, owner_of_path


@pytest.mark.parametrize(
    ("path", "rank", "local_rank"),
    [
        ("logs/rank_3/stderr.log", 3, None),
        ("rank12.log", 12, None),
        ("run/attempt_0/5/stderr.log", None, 5),
        ("slurm-771.out", None, None),
        ("frank3.log", None, None),
    ],
)
def test_whose_a_path_is(path: str, rank: "int | None", local_rank: "int | None") -> None:
    assert owner_of_path(path) == Owner(name=path, rank=rank, local_rank=local_rank)


def test_a_part_lasts_until_the_next_heading() -> None:
    sections = Sections()
    texts = ["==> rank1.log <==", "x", "==> notes.txt <==", "----------Begin global rank 4 STDERR----------", "y"]
    seen = []
    for text in [*texts, "----------End global rank 4 STDERR----------", "----------"]:
        seen.append((sections.is_heading(text), sections.owner.rank))
    assert seen == [(True, 1), (False, 1), (True, None), (True, 4), (False, 4), (True, None), (False, None)]
