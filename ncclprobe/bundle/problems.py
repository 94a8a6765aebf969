"""What is wrong with a bundle, one line a reason.

In: single complaints, hundreds of thousands if an archive is hostile. Out: one `Gap` for each reason, with a count.
"""

from ncclprobe.model.evidence import Gap

BUNDLE = "bundle"
NOT_OURS = "nothing, unless you miss this file; a bundle that ncclprobe wrote holds no such entry"


class Problems:
    """Complaints met while a bundle is opened, folded by who they concern and why."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, str], int] = {}
        self._first: dict[tuple[str, str, str], str] = {}

    def add(self, *, what: str, why: str, action: str, who: str = BUNDLE) -> None:
        """Note that `what` is not usable; of equal complaints only the first `what` is shown."""
        key = (who, why, action)
        self._counts[key] = self._counts.get(key, 0) + 1
        self._first.setdefault(key, what)

    def gaps(self) -> tuple[Gap, ...]:
        """One gap a reason, sorted."""
        return tuple(sorted(self._gap(*key) for key in self._counts))

    def _gap(self, who: str, why: str, action: str) -> Gap:
        more = self._counts[who, why, action] - 1
        first = self._first[who, why, action]
        return Gap(who=who, what=f"{first} and {more} more" if more else first, why=why, action=action)
