"""Could this host's evidence be collected now? The probe's other way to run.

In: the sources and the checks. Out: a `Source` for each, which yields a checkup in place of evidence.

A source that disturbs nothing and asks nobody is tried: what it would give is thrown away, what stands in its way is
kept. For the others there are checks that only look at the conditions.
"""

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial

from ncclprobe.model.checkup import Check, CheckState, RankSettings
from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.probe import checks
from ncclprobe.probe.plugins import find_sources
from ncclprobe.probe.source import Context, Disturbance, Found, Source

CHECKUP = "checkup"
# They ask the job for something, or need what others have found.
_NOT_TRIED = ("dump_pipe", "ras", "user_code", "worker_server")
_NOTHING_TO_DO = ("none", "nothing")  # how the action of a gap begins that is nothing to worry about


def find_checks() -> list[Source]:
    """Everything a checkup runs, all at once."""
    tried = [one for one in find_sources() if one.disturbs is Disturbance.NOTHING and one.name not in _NOT_TRIED]
    names = {one.name for one in tried}
    others = [one for one in find_sources(checks) if one.name not in names]
    return [*(replace(one, wave=1, collect=partial(_try, one)) for one in tried), *others]


def found(name: str, results: Iterable[Check] = (), ranks: Iterable[RankSettings] = ()) -> Found:
    """Checks and settings as they travel."""
    document = {"checks": [asdict(check) for check in results], "ranks": [asdict(rank) for rank in ranks]}
    return Found(
        file=f"{name}.json",
        kind=Kind.CHECKUP,
        origin=f"checkup {name}",
        data=json.dumps(document).encode(),
        end_ns=time.time_ns(),
    )


def _try(source: Source, context: Context) -> Iterator[Found | Gap]:
    count, first, gaps = 0, "", []
    for item in source.collect(context):
        if isinstance(item, Gap):
            gaps.append(item)
        else:
            count, first = count + 1, first or item.origin
    yield found(source.name, _results(source.name, count, first, gaps, context.host))


def _results(name: str, count: int, first: str, gaps: Iterable[Gap], host: str) -> Iterator[Check]:
    if count:
        more = f" and {count - 1} more" if count > 1 else ""
        yield Check(name=name, state=CheckState.OK, what=f"{first}{more}")
    for gap in gaps:
        is_harmless = gap.action.lower().startswith(_NOTHING_TO_DO)
        bad = CheckState.LIMITED if count else CheckState.BLOCKED
        who = "" if gap.who == host else f"{gap.who}: "
        what = f"{who}{gap.what}: {gap.why}"
        if is_harmless:
            yield Check(name=name, state=CheckState.ABSENT, what=what)
        else:
            yield Check(name=name, state=bad, what=what, action=gap.action)
    if not count and not gaps:
        yield Check(name=name, state=CheckState.ABSENT, what="there is nothing of the kind now")
