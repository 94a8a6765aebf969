"""Whether a rank would have been heard, had it written anything: its silence tells only then.

In: a `Case`. Out: ranks whose log was among those given. One log of several ranks is that of all of the host, or of the
job; of logs of a rank each, one that is not there may just not have been given.
"""

from collections import defaultdict

from ncclprobe.analyze.case import Case


def listened_to(case: Case) -> frozenset[int]:
    """Ranks that were heard, and those between the ranks of one log; all, where one log is all there is."""
    by_file: dict[str, set[int]] = defaultdict(set)
    for those in case.logs.by_fact.values():
        for said in those:
            if said.record.rank is not None:
                by_file[said.artifact.path].add(said.record.rank)
    for rank, speaker in case.logs.speakers.items():
        by_file[speaker.artifact.path].add(rank)
    shared = [ranks for ranks in by_file.values() if len(ranks) > 1]
    if len(by_file) == 1 and shared:
        return frozenset(case.expected)
    between = (rank for ranks in shared for rank in range(min(ranks), max(ranks) + 1))
    return case.logs.heard | frozenset(between)
