"""Of ranks that others wait for, those that are not waiting themselves.

In: a `Case` and ranks. Out: the ranks whose stacks are outside every wait, where the stacks of all others are in one.
"""

from ncclprobe.analyze.case import Case


def outside_of_waits(case: Case, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """All of them, where their stacks do not set some apart."""
    if not all(rank in case.positions for rank in ranks):
        return ranks
    outside = tuple(rank for rank in ranks if not case.positions[rank].phase.waits_for_ranks)
    return outside or ranks
