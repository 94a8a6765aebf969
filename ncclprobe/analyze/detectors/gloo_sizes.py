"""gloo ended a rank because what it received was longer than what it waited for (torch 2.13, gloo's tcp pair).

In: exceptions in logs. Out: a finding that sizes or order differ, and no name: the rank that ends is the one that
received, and which of the two has the wrong size no line tells.
"""

import re
from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import cite_said
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.log import Raised
from ncclprobe.model.report import Cause, Confidence, Finding

_TOO_LONG = re.compile(r"op\.preamble\.length <= op\.nbytes|Received data size doesn't match expected size")


def detect(case: Case) -> Iterator[Finding]:
    """Only where no recorder shows the calls themselves."""
    said = [s for s, what in case.logs.facts(Raised) if _TOO_LONG.search(what.message)]
    if not said or case.mismatches:
        return
    ranks = tuple(sorted({s.record.rank for s in said if s.record.rank is not None}))
    yield Finding(
        cause=Cause.COLLECTIVE_SHAPE_MISMATCH,
        summary=f"{name_ranks(ranks).capitalize()} received more than expected: some rank's call has another size.",
        guilty_ranks=(),
        confidence=Confidence.PROBABLE,
        victims=ranks,
        evidence=tuple(cite_said(s, "gloo ended this rank: what came was too long") for s in said[:2]),
        next_steps=(
            "run it again with TORCH_DISTRIBUTED_DEBUG=DETAIL: each rank then prints what it runs",
            "or with TORCH_FR_BUFFER_SIZE=2000 and diagnose it with --live-dump before it ends",
        ),
        fix="Give the call the same sizes and types on all ranks: pad the last batch.",
    )


DETECTOR = Detector(causes=(Cause.COLLECTIVE_SHAPE_MISMATCH,), detect=detect)
