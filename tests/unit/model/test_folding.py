"""Sets of ranks as people write them."""

import pytest

from ncclprobe.model.folding import fold, fold_short, name_ranks, unfold


@pytest.mark.parametrize(
    ("ranks", "text"), [([], ""), ([0], "0"), ([3, 1, 2, 0, 7], "0-3,7"), ([5, 5, 6], "5-6"), (range(4096), "0-4095")]
)
def test_runs_become_spans(ranks: list[int], text: str) -> None:
    assert fold(ranks) == text


def test_a_sentence_about_thousands_stays_a_sentence() -> None:
    assert fold_short(range(0, 4096, 2)).endswith(",... (2048 ranks)")
    assert len(name_ranks(range(0, 4096, 2))) < 80


def test_names_count() -> None:
    assert (name_ranks([0]), name_ranks([1, 2]), name_ranks([])) == ("rank 0", "ranks 1-2", "no rank")


@pytest.mark.parametrize("ranks", [[], [0], [0, 1, 2, 5, 7, 8], range(4096)])
def test_unfolding_gives_the_ranks_back(ranks: list[int]) -> None:
    assert unfold(fold(ranks)) == set(ranks)


@pytest.mark.parametrize("text", ["x", "1-x", "-"])
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        unfold(text)
