"""Sets of ranks that a condition lets through, combined.

In: `RankSet`s, or None for "any rank, as far as is known". Out: the same. Global and local ranks do not mix: of two
conditions on different kinds only one can be kept, which is still true, but says less.
"""

from collections.abc import Iterable
from dataclasses import replace

from ncclprobe.model.source import RankSet

NOBODY = RankSet(ranks=())


def only(ranks: Iterable[int], *, is_local: bool = False) -> RankSet:
    """These ranks; numbers below 0, which code uses for "not distributed", are nobody's."""
    return RankSet(ranks=tuple(sorted({rank for rank in ranks if rank >= 0})), is_local=is_local)


def others(ranks: RankSet | None) -> RankSet | None:
    """The complement, as far as a rank can be left out for certain."""
    if ranks is None:
        return None
    rest = replace(ranks, is_all_but=not ranks.is_all_but)
    return None if rest.is_all_but and not rest.ranks else rest


def both(outer: RankSet | None, inner: RankSet | None) -> RankSet | None:
    """Who satisfies both; the inner one where they cannot be combined."""
    if outer is None or inner is None:
        return inner if outer is None else outer
    if outer == NOBODY or inner == NOBODY:
        return NOBODY
    if outer.is_local != inner.is_local:
        return inner
    one, two = set(outer.ranks), set(inner.ranks)
    if outer.is_all_but and inner.is_all_but:
        return replace(inner, ranks=tuple(sorted(one | two)))
    if outer.is_all_but:
        return only(two - one, is_local=inner.is_local)
    return only(one - two if inner.is_all_but else one & two, is_local=inner.is_local)


def either(one: RankSet | None, two: RankSet | None) -> RankSet | None:
    """Who satisfies at least one."""
    if one is None or two is None:
        return None
    if one == NOBODY or two == NOBODY:
        return two if one == NOBODY else one
    return None if one.is_local != two.is_local else others(both(others(one), others(two)))
