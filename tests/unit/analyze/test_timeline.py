"""Where each rank's calls are, per group."""

from array import array
from dataclasses import replace
from random import Random

from ncclprobe.analyze.heads import find_heads
from ncclprobe.analyze.match import find_mismatch
from ncclprobe.analyze.timeline import Track, build_timelines
from ncclprobe.model.collectives import Recording
from tests.evidence import dumps, mixed, recording, without_rows


def tracks_of(made: dict[int, Recording]) -> dict[int, Track]:
    (timeline,) = build_timelines(dumps(made), None)
    return timeline.tracks


def test_calls_are_in_order_of_number_whatever_their_rows() -> None:
    made = mixed(("0", (0, 1), "a", 3), ("0", (0, 1), "b", 1, True), ("0", (0, 1), "c", 2))
    track = tracks_of({0: made})[0]
    assert list(track.seqs) == [1, 2, 3]
    assert list(track.rows) == [1, 2, 0]
    assert track.is_gapless
    assert track.last_completed == 1


def test_gaps_and_repeated_numbers_are_seen() -> None:
    whole = recording(["a"] * 5)
    assert tracks_of({0: whole})[0].is_gapless
    assert not tracks_of({0: without_rows(whole, 2)})[0].is_gapless
    assert not tracks_of({0: replace(whole, seq=array("q", [1, 2, 2, 3, 5]))})[0].is_gapless


def test_messages_and_other_groups_are_apart() -> None:
    made = mixed(("0", (0, 1), "a", 1), ("7", (0, 1), "b", 1), ("0", (0, 1), "send 0->1", 1), ("7", (0, 1), "b", 2))
    of_group = {timeline.group.name: timeline.tracks[0] for timeline in build_timelines(dumps({0: made}), None)}
    assert {name: list(track.rows) for name, track in of_group.items()} == {"0": [0], "7": [1, 3]}


def test_ranks_with_the_same_columns_keep_their_own_recordings() -> None:
    one, other = recording(["a"] * 3, completed=3), recording(["b"] * 3, completed=1)
    tracks = tracks_of({0: one, 1: other})
    assert tracks[0].rows is tracks[1].rows
    assert [tracks[rank].last_completed for rank in (0, 1)] == [3, 1]
    assert sorted(find_heads(dumps({0: one, 1: other}))) == [1]


def test_the_first_difference_is_the_first_for_any_holes_and_lengths() -> None:
    chance = Random(1)
    for _ in range(300):
        made = {rank: recording([chance.choice("ab") for _ in range(chance.randint(1, 5))]) for rank in range(3)}
        made = {rank: without_rows(one, chance.randrange(1, 6)) for rank, one in made.items()}
        (timeline,) = build_timelines(dumps(made), None)
        ops = {rank: _ops(track) for rank, track in timeline.tracks.items()}
        start = max(track.first_seq for track in timeline.tracks.values())
        differing = [seq for seq in range(start, 6) if len({one[seq] for one in ops.values() if seq in one}) > 1]
        found = find_mismatch(timeline)
        assert (found.seq if found else None) == (differing[0] if differing else None)


def _ops(track: Track) -> dict[int, str]:
    calls = ((seq, track.call(seq)) for seq in track.seqs)
    return {seq: call.signature.op for seq, call in calls if call}
