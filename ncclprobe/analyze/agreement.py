"""What the members of one call must agree on, as small numbers that can be compared over all ranks.

In: tracks of one group. Out: per rank one token for each sequence number.

What may rightly differ is left out: the root's list of gather and scatter, each rank's share of an all_to_all, of an
uneven all_gather or reduce_scatter. NCCL sees counts, no shapes: so sizes are compared as numbers of elements, and
calls that differ only in how their tensors are cut (`all_gather` into a list, `_all_gather_base` into one) match.
"""

from array import array
from collections.abc import Iterable
from enum import Enum
from itertools import groupby
from math import prod
from operator import itemgetter

from ncclprobe.analyze.timeline import UNKNOWN, Track
from ncclprobe.model.collectives import Signature, Sizes


class Compared(Enum):
    """Which numbers of elements must agree: of each tensor, in all of one side, or what each member has of its own."""

    EACH = "each"
    INPUT = "input"
    OUTPUT = "output"
    SHARE = "share"
    NOTHING = "nothing"


# Names as torch records them, those of `_coalesced` calls on lists of tensors and of the nccl2 backend (2.15) too: the
# family, calls of which can meet, and what is compared. Any other op is a family of its own, compared in each tensor.
RULES = {
    "all_gather": ("all_gather", Compared.OUTPUT),
    "_all_gather_base": ("all_gather", Compared.OUTPUT),
    "all_gather_into_tensor": ("all_gather", Compared.OUTPUT),
    "all_gather_single": ("all_gather", Compared.OUTPUT),
    "all_gather_v": ("all_gather_v", Compared.OUTPUT),
    "all_gather_into_tensor_coalesced": ("all_gather_coalesced", Compared.EACH),
    "reduce_scatter": ("reduce_scatter", Compared.INPUT),
    "_reduce_scatter_base": ("reduce_scatter", Compared.INPUT),
    "reduce_scatter_tensor": ("reduce_scatter", Compared.INPUT),
    "reduce_scatter_single": ("reduce_scatter", Compared.INPUT),
    "reduce_scatter_v": ("reduce_scatter_v", Compared.INPUT),
    "reduce_scatter_tensor_coalesced": ("reduce_scatter_coalesced", Compared.EACH),
    "all_to_all": ("all_to_all", Compared.NOTHING),
    "all_to_allv": ("all_to_all", Compared.NOTHING),
    "all_to_all_single": ("all_to_all", Compared.NOTHING),
    "all_to_all_v_single": ("all_to_all", Compared.NOTHING),
    "gather": ("gather", Compared.SHARE),
    "scatter": ("scatter", Compared.SHARE),
    "allreduce_coalesced": ("all_reduce_coalesced", Compared.EACH),
    "all_reduce_coalesced": ("all_reduce_coalesced", Compared.EACH),
}
_BLOCK_END = "coalesced"


def comparable(signature: Signature, *, is_typed: bool = True) -> tuple[object, ...]:
    """The part of a signature that every member of the group must share; without types, where a dump names none."""
    family, compared = RULES.get(signature.op, (signature.op, Compared.EACH))
    dtype = _dtype(signature) if is_typed else None
    if compared is Compared.EACH:
        return family, dtype, numels(signature.input_sizes), numels(signature.output_sizes)
    if compared is Compared.NOTHING:
        return family, dtype
    totals = {"input": sum(numels(signature.input_sizes)), "output": sum(numels(signature.output_sizes))}
    # Of gather and scatter the root alone has a list, on the one side or, with gloo, on the other; others have nothing.
    shared = min(filter(None, totals.values()), default=0)
    return family, dtype, totals.get(compared.value, shared)


def numels(sizes: Sizes) -> tuple[int, ...]:
    """The number of elements of each tensor."""
    return tuple(prod(size) for size in sizes)


def _dtype(signature: Signature) -> str | None:
    """That of the first tensor there is: a side that is empty for all but the root has none, or an undefined one."""
    for sizes, dtypes in (
        (signature.input_sizes, signature.input_dtypes),
        (signature.output_sizes, signature.output_dtypes),
    ):
        if sizes and dtypes and dtypes[0] != "Undefined":
            return dtypes[0]
    return None


def ends_block(op: str) -> bool:
    """Whether an entry of this name closes a block of coalesced calls: `coalesced`, `ALLGATHER_coalesced`."""
    return op == _BLOCK_END or (op.endswith("_coalesced") and op not in RULES)


def tokens_of(tracks: Iterable[Track]) -> "dict[int, array[int]]":
    """By rank: one token per sequence number from its first to its last, UNKNOWN where a call is missing.

    A block of coalesced calls has one number: its token is that of all its calls in order. Torch before 2.8 records
    only what ends a block, before 2.4 no types: what one rank's dump does not tell is compared on no rank.
    """
    known = sorted(tracks, key=lambda track: track.rank)
    has_inner = all(_has_inner(track) for track in known)
    is_typed = all(_names_types(track) for track in known)
    numbers: dict[object, int] = {}
    tokens = {}
    for track in known:
        keys = [comparable(signature, is_typed=is_typed) for signature in track.recording.signatures]
        of_signature = [numbers.setdefault(key, len(numbers)) for key in keys]
        tokens[track.rank] = _tokens(track, of_signature, numbers, has_inner=has_inner)
    return tokens


def _tokens(track: Track, of_signature: list[int], numbers: dict[object, int], *, has_inner: bool) -> "array[int]":
    recording = track.recording
    first = track.first_seq
    tokens = array("q", map(of_signature.__getitem__, map(recording.signature_of.__getitem__, track.rows)))
    if not track.is_gapless:
        given, tokens = tokens, array("q", [UNKNOWN]) * (track.last_seq - first + 1)
        for seq, token in zip(track.seqs, given, strict=True):
            tokens[seq - first] = token
    for seq, rows in _blocks(track):
        block = tuple(of_signature[recording.signature_of[row]] for row in rows)
        # The ring, or damage, may have taken the beginning of a block, or a call out of it.
        is_cut = seq == first or not recording.is_whole
        key: object = ("block", block) if has_inner else "block"
        tokens[seq - first] = UNKNOWN if is_cut else numbers.setdefault(key, len(numbers))
    return tokens


def _blocks(track: Track) -> "Iterable[tuple[int, list[int]]]":
    """Numbers that more than one entry shares, and those entries' rows; also what ends a block that has no more."""
    ends = {index for index, known in enumerate(track.recording.signatures) if ends_block(known.op)}
    signature_of = track.recording.signature_of
    is_unique = track.is_gapless or len(set(track.seqs)) == len(track.seqs)
    if is_unique and (not ends or ends.isdisjoint(map(signature_of.__getitem__, track.rows))):
        return
    for seq, shared in groupby(zip(track.seqs, track.rows, strict=True), key=itemgetter(0)):
        rows = [row for _, row in shared]
        if len(rows) > 1 or signature_of[rows[0]] in ends:
            yield seq, rows


def _has_inner(track: Track) -> bool:
    """Whether the calls inside blocks were recorded, as far as the track holds any block."""
    return all(len(rows) > 1 for seq, rows in _blocks(track) if seq != track.first_seq)


def _names_types(track: Track) -> bool:
    """Whether the dump names the types of tensors: torch 2.4 and later."""
    return not any(known.input_sizes and not known.input_dtypes for known in track.recording.signatures)
