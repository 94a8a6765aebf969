"""Times in front of a launcher's labels."""

import pytest

from ncclprobe.parse.log.stamps import split_stamp


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Tue Mar  3 14:00:10 2026[1,3]<stderr>:x", ("Tue Mar  3 14:00:10 2026", "[1,3]<stderr>:x")),
        ("[2025-05-10 00:18:21] (W pid=12, ip=10.0.0.1) x", ("2025-05-10 00:18:21", "(W pid=12, ip=10.0.0.1) x")),
        ("18:11:06.680 [rank4]: x", ("18:11:06.680", "[rank4]: x")),
        ("2026-10-01T05:00:00.000Z\t[default4]:x", ("2026-10-01T05:00:00.000Z", "[default4]:x")),
        ("2026-10-01 05:00:00 INFO step 3", None),  # a program's own time
        ("2026-10-01 05:00:00 [rank 3] step 3", None),
        ("12 of 13 [rank4]: x", None),
        ("[rank4]: x", None),
        ("[2026-10-01 05:00:00] 3: x", None),
    ],
)
def test_only_before_a_label(text: str, found: "tuple[str, str] | None") -> None:
    assert split_stamp(text) == found


def test_before_labels_of_srun_where_most_lines_have_them() -> None:
    assert split_stamp("[2026-10-01 05:00:00] 3: x", has_tasks=True) == ("2026-10-01 05:00:00", "3: x")
