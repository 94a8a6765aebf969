"""The process of a rank is gone while others on its host live, and nothing tells how it ended.

In: live processes, and the logs that ranks without one have left beside theirs. Out: a finding that names the rank, for
a dead rank is waited for whatever killed it; another detector's, where it knows how the rank ended, is surer.
"""

from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.model.evidence import Citation
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import Died, Left, Raised
from ncclprobe.model.report import Cause, Confidence, Finding

_FIX = "Look at how it ended before anything else: its exit status at the launcher, the kernel log, its last lines."


def detect(case: Case) -> Iterator[Finding]:
    """Nothing where a log says how any of them ended: then that is the reason."""
    told = {said.record.rank for said in case.logs.of(Raised, Died, Left)}
    ranks = case.gone
    if not ranks or set(ranks) & told:
        return
    yield Finding(
        cause=Cause.RANK_EXITED,
        summary=(
            f"{name_ranks(ranks).capitalize()} ended: the process is gone, its log has no error, and nothing says "
            "whether it left by itself or was killed."
        )[:200],
        guilty_ranks=ranks,
        confidence=Confidence.POSSIBLE,
        victims=tuple(sorted(case.ranks)),
        evidence=tuple(_last_words(case, ranks)),
        next_steps=(f"ask the launcher or the scheduler for the exit status of {name_ranks(ranks)}; dmesg for a kill",),
        fix=_FIX,
    )


def _last_words(case: Case, ranks: tuple[int, ...]) -> Iterator[Citation]:
    for rank in ranks[:3]:
        speaker = case.logs.speakers.get(rank)
        if speaker is not None:
            place, says = f"line {speaker.record.last_line}", f"the last line of rank {rank}, whose process is gone"
            yield Citation(
                artifact=speaker.artifact.path, place=place, quote=speaker.record.last_words[:200], says=says
            )


DETECTOR = Detector(causes=(Cause.RANK_EXITED,), detect=detect)
