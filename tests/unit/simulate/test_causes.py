"""Each scenario plants what it says, and nothing else."""

from collections import defaultdict

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.model.report import Cause
from ncclprobe.simulate.calls import Call
from ncclprobe.simulate.clock import NEVER
from ncclprobe.simulate.scenario import all_scenarios
from ncclprobe.simulate.simulation import Plan, truth_of
from tests.unit.simulate.simulated import calls_in, plan, recordings_of, runs_of

# Those of the causes that dumps can show.
CAUSES = {
    Cause.COLLECTIVE_EXTRA,
    Cause.COLLECTIVE_SKIPPED,
    Cause.COLLECTIVE_DESYNC,
    Cause.COLLECTIVE_OP_MISMATCH,
    Cause.COLLECTIVE_SHAPE_MISMATCH,
    Cause.GROUP_ORDER_DEADLOCK,
    Cause.P2P_MISMATCH,
    Cause.STUCK_IN_PYTHON,
    Cause.STUCK_IN_CUDA,
    Cause.RANK_EXITED,
    Cause.COLLECTIVE_STALLED,
    Cause.PROGRESSING,
}
NAMES = [scenario.name for scenario in all_scenarios()]
SEQUENCE = [name for name in NAMES if name.startswith("collective-") and "stalled" not in name]
CASES = [(scenario, ranks) for scenario in all_scenarios() for ranks in (2, 4, 8, 24, 64) if scenario.fits(ranks, None)]


def outstanding(made: Plan) -> list[int]:
    return [rank for rank, run in enumerate(runs_of(made)) if NEVER in run.ended]


def collectives(made: Plan, rank: int) -> dict[str, list[Call]]:
    """What the rank issued, by group."""
    issued = calls_in(made.program(rank))[: len(runs_of(made)[rank].issued)]
    found = defaultdict(list)
    for call in issued:
        if not call.is_p2p:
            found[made.job.layout.group(call.axis, rank).name].append(call)
    return found


def test_every_cause_that_dumps_can_show_has_a_scenario() -> None:
    assert {scenario.cause for scenario in all_scenarios()} == CAUSES
    assert all(name.startswith(f"{scenario.cause}/") for scenario, name in zip(all_scenarios(), NAMES, strict=True))


@pytest.mark.parametrize(("scenario", "ranks"), CASES, ids=lambda value: getattr(value, "name", value))
def test_every_scenario_of_any_size_hangs_as_promised(scenario, ranks: int) -> None:  # type: ignore[no-untyped-def]
    made = plan(scenario.name, ranks, seed=ranks)
    truth = truth_of(made)
    assert (truth.scenario, truth.cause, truth.world_size) == (scenario.name, scenario.cause, ranks)
    assert set(truth.guilty_ranks) <= set(range(ranks))
    assert not set(truth.guilty_ranks) & set(truth.never_blame)
    assert bool(outstanding(made)) is not made.planted.is_running
    assert bool(truth.guilty_ranks) is (scenario.cause not in (Cause.COLLECTIVE_STALLED, Cause.PROGRESSING))


@pytest.mark.parametrize("name", SEQUENCE)
@pytest.mark.parametrize("seed", range(4))
def test_only_the_guilty_leave_the_common_sequence(name: str, seed: int) -> None:
    made = plan(name, 16, seed=seed)
    innocent = [rank for rank in range(16) if rank not in made.planted.guilty]
    longest: dict[str, list[Call]] = {}
    for rank in innocent:
        for group, calls in collectives(made, rank).items():
            known = longest.setdefault(group, calls)
            both = zip(known, calls, strict=False)
            assert all(one.agrees_with(other) for one, other in both)
            longest[group] = max(known, calls, key=len)
    for rank in made.planted.guilty:
        assert any(
            not one.agrees_with(other)
            for group, calls in collectives(made, rank).items()
            for one, other in zip(calls, longest.get(group, []), strict=False)
        ) or name.endswith("other-group")


@pytest.mark.parametrize("name", SEQUENCE)
def test_the_truth_names_the_first_call_that_shows_it(name: str) -> None:
    made = plan(name, 16, seed=3)
    truth, recordings = truth_of(made), recordings_of(made)
    in_group = {
        rank: {call.seq: call for call in recording.calls() if call.group.label == truth.group and not call.is_p2p}
        for rank, recording in recordings.items()
        if rank in made.job.layout.group(made.planted.axis or "", made.planted.rank).ranks
    }
    guilty = made.planted.guilty[0]
    innocent = next(rank for rank in in_group if rank not in truth.guilty_ranks)
    assert truth.seq is not None
    before = [seq for seq in in_group[guilty] if seq < truth.seq and in_group[guilty][seq].signature.op != "all_to_all"]
    assert all(
        in_group[guilty][seq].signature.op == in_group[innocent][seq].signature.op
        for seq in before
        if seq in in_group[innocent]
    )
    ours, theirs = in_group[guilty].get(truth.seq), in_group[innocent].get(truth.seq)
    assert ours is None or theirs is None or ours.signature != theirs.signature or name.endswith("other-group")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("stuck-in-python")])
def test_a_rank_outside_collectives_has_none_outstanding(name: str, seed: int) -> None:
    made = plan(name, 8, seed=seed)
    assert not set(made.planted.guilty) & set(outstanding(made))
    assert outstanding(made)


@pytest.mark.parametrize("seed", range(6))
def test_a_stopped_gpu_has_enqueued_what_it_never_ends(seed: int) -> None:
    made = plan("stuck-in-cuda/lagging", 8, seed=seed)
    truth, recordings = truth_of(made), recordings_of(made)
    stuck = [
        call
        for call in recordings[truth.guilty_ranks[0]].calls()
        if (call.group.label, call.seq, call.is_p2p) == (truth.group, truth.seq, False)
    ]
    peers = made.job.layout.group(made.planted.axis or "", made.planted.rank).ranks
    ended = [
        call.is_completed
        for rank in peers
        if rank not in truth.guilty_ranks
        for call in recordings[rank].calls()
        if (call.group.label, call.seq, call.is_p2p) == (truth.group, truth.seq, False)
    ]
    assert [call.is_completed for call in stuck] == [False]
    assert ended
    assert all(ended)


@pytest.mark.parametrize("seed", range(4))
def test_a_stalled_call_was_issued_by_all_and_ended_by_none_but_its_root(seed: int) -> None:
    for name in ("collective-stalled/network", "collective-stalled/broadcast"):
        made = plan(name, 8, seed=seed)
        truth, recordings = truth_of(made), recordings_of(made)
        peers = made.job.layout.group(made.planted.axis or "", made.planted.rank).ranks
        calls = [
            call.is_completed
            for rank in peers
            for call in recordings[rank].calls()
            if (call.group.label, call.seq, call.is_p2p) == (truth.group, truth.seq, False)
        ]
        assert len(calls) == len(peers)
        assert sum(calls) == (name.endswith("broadcast"))


@pytest.mark.parametrize("ranks", [4, 8, 32])
def test_a_ring_of_groups_closes(ranks: int) -> None:
    made = plan("group-order-deadlock/ring", ranks)
    layout = made.job.layout
    ring = made.planted.guilty
    for rank in ring:
        row = set(layout.group("tp", rank).ranks) & set(ring) - {rank}
        column = set(layout.group("dp", rank).ranks) & set(ring) - {rank}
        assert (len(row), len(column)) == (1, 1)
    assert set(ring) <= set(outstanding(made))


def test_a_rank_that_exited_leaves_no_dump_and_the_others_wait() -> None:
    made = plan("rank-exited/early", 8, seed=2)
    gone = made.planted.guilty[0]
    assert gone not in made.dumping
    assert len(made.dumping) == 7
    assert set(outstanding(made)) <= set(made.dumping)


def test_skewed_dumps_of_a_healthy_job_do_not_end_at_one_call() -> None:
    recordings = recordings_of(plan("progressing/skewed", 8, job="ddp", skew_s=0.5))
    assert len({recording.seq[-1] for recording in recordings.values()}) > 1


def test_what_cannot_be_simulated_is_said_plainly() -> None:
    with pytest.raises(UsageError, match="collective-extr") as error:
        plan("collective-extr", 4)
    assert "collective-extra" in error.value.advice
    with pytest.raises(UsageError, match="finds no place among 3 ranks"):
        plan("p2p-mismatch", 3)
    with pytest.raises(UsageError, match="cannot happen to 64 ranks"):
        plan("group-order-deadlock/pair", 64)
    with pytest.raises(UsageError, match="of a ddp job"):
        plan("p2p-mismatch/both-send", 8, job="ddp")
    with pytest.raises(UsageError, match="horovod"):
        plan("stuck-in-python", 8, job="horovod")
