"""TORCH_DISTRIBUTED_DEBUG=DETAIL: each rank prints what it runs itself when another runs something else.

In: fingerprints and tracebacks of logs. Out: a finding with the user's line of those that differ from most.
"""

from collections import defaultdict
from collections.abc import Iterator

from ncclprobe.analyze.case import Case
from ncclprobe.analyze.detector import Detector
from ncclprobe.analyze.logs import Said, cite_said
from ncclprobe.model.folding import name_ranks
from ncclprobe.model.frames import Frame, innermost_user_frame
from ncclprobe.model.log import Fingerprint, Raised
from ncclprobe.model.report import BlockedOn, Cause, CodeLocation, Confidence, Finding


def detect(case: Case) -> Iterator[Finding]:
    """Of the first number at which they differ; only what a rank says of itself counts."""
    if case.mismatches:
        return
    own: dict[int, tuple[Said, Fingerprint]] = {}
    for said, what in case.logs.facts(Fingerprint):
        own.setdefault(what.rank, (said, what))
    first = min((what.seq for _, what in own.values() if what.seq is not None), default=None)
    sides: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, (_, what) in sorted(own.items()):
        if what.seq == first:
            sides[what.op, what.shape, what.dtype].append(rank)
    if len(sides) > 1:
        yield _finding(case, own, sorted(sides.values(), key=lambda ranks: (-len(ranks), ranks)))


def _finding(case: Case, own: dict[int, tuple[Said, Fingerprint]], sides: list[list[int]]) -> Finding:
    most = sides[0]
    few = tuple(sorted(rank for side in sides[1:] for rank in side))
    has_majority = 2 * len(most) > len(case.expected)
    is_pair = len(case.expected) == 2
    said, odd = own[few[0]]
    usual = own[most[0]][1]
    places = [(rank, frame) for rank in (few[0], most[0]) if (frame := _line(case, rank))]
    return Finding(
        cause=Cause.COLLECTIVE_OP_MISMATCH if odd.op != usual.op else Cause.COLLECTIVE_SHAPE_MISMATCH,
        summary=(
            f"As call {odd.seq} {name_ranks(few)} issued {_text(odd)}, {name_ranks(most)} {_text(usual)}"
            + (f", at {places[0][1].file.rsplit('/', 1)[-1]}:{places[0][1].line}." if places else ".")
        )[:200],
        guilty_ranks=few if has_majority else case.expected if is_pair else (),
        confidence=Confidence.PROBABLE if has_majority or is_pair else Confidence.POSSIBLE,
        victims=tuple(most) if has_majority else (),
        blocked_on=BlockedOn(group="default_pg", seq=odd.seq, op=usual.op),
        where=tuple(
            CodeLocation(rank=rank, file=frame.file, line=frame.line, function=frame.function) for rank, frame in places
        ),
        evidence=(
            cite_said(said, f"{name_ranks(few)} issued {_text(odd)}"),
            cite_said(own[most[0]][0], f"{name_ranks(most)} issued {_text(usual)}"),
        ),
        next_steps=("compare the two call sites: one is under a condition that not all ranks share",),
        fix="Make all ranks issue the same collective here; compare the two call sites.",
    )


def _text(what: Fingerprint) -> str:
    return what.op if what.shape is None else f"{what.op}{list(what.shape)}"


def _line(case: Case, rank: int) -> Frame | None:
    """Where the rank's own traceback left the user's code."""
    stacks = (said.record.what for said in case.logs.of_rank(rank, Raised))
    found = (innermost_user_frame(what.stack) for what in stacks if isinstance(what, Raised))
    return next((frame for frame in found if frame), None)


DETECTOR = Detector(causes=(Cause.COLLECTIVE_OP_MISMATCH, Cause.COLLECTIVE_SHAPE_MISMATCH), detect=detect)
