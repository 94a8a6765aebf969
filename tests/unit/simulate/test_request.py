"""Which dumps are left out, and what is refused."""

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.simulate.request import Request, dropped_ranks


def dropped(text: str, ranks: int = 8, guilty: tuple[int, ...] = (3,), seed: int = 0) -> set[int]:
    return set(dropped_ranks(Request(name="x", ranks=ranks, drop=text, seed=seed), guilty))


def test_dumps_to_leave_out_are_counted_listed_or_the_guilty() -> None:
    assert dropped("") == set()
    assert dropped("guilty") == {3}
    assert dropped("0,") == {0}
    assert dropped("0,5-7") == {0, 5, 6, 7}
    assert len(dropped("3")) == 3
    assert dropped("3") == dropped("3")
    assert len({frozenset(dropped("3", seed=seed)) for seed in range(9)}) > 1


@pytest.mark.parametrize("text", ["8", "x", "7-5", "0-8", "1;2", "-1,", "0-7"])
def test_what_names_no_dumps_or_all_of_them_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        dropped(text)


@pytest.mark.parametrize("options", [{"ranks": 1}, {"ranks": 1 << 20}, {"ranks": 4, "skew_s": -1.0}])
def test_sizes_out_of_reach_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Request(name="x", **options)  # type: ignore[arg-type]
