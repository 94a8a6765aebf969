"""Ranks that are gone, stopped, or were never there; ranks with another setting; a port that is down."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest

from ncclprobe.analyze.verdict import analyze
from ncclprobe.model.evidence import Artifact, Kind
from ncclprobe.model.frames import Frame
from ncclprobe.model.job import JobProcess
from ncclprobe.model.kernel import OomKill
from ncclprobe.model.log import Failure, Left, LogEvent, LogFact, PeerLost, Raised, Speaker
from ncclprobe.model.nic import PortLook
from ncclprobe.model.records import Sourced
from ncclprobe.model.report import Cause, Confidence, Verdict
from tests.evidence import DATALOADER, TRAIN, both_looks, evidence, host, in_backward, processes

C10D = "/site-packages/torch/distributed/distributed_c10d.py"
IN_SETUP = (Frame("init_process_group", C10D, 1899), Frame("main", TRAIN, 60))
WAITING = in_backward(2)


def log(rank: int) -> Artifact:
    path = f"hosts/node1/rank_log/rank{rank}.stdout.log"
    return Artifact(path=path, kind=Kind.RANK_LOG, host="node1", origin=f"/logs/{rank}", rank=rank)


def said(rank: int, what: LogFact, line: int = 9) -> Sourced[LogEvent]:
    return Sourced(log(rank), LogEvent(line=line, quote=str(what), what=what, rank=rank))


def spoke(rank: int) -> Sourced[Speaker]:
    return Sourced(log(rank), Speaker(rank=rank, host=None, pid=None, lines=9, last_line=9, last_words="step 9 loss 1"))


def in_state(state: str, *ranks: int) -> tuple[Sourced[JobProcess], ...]:
    """Four ranks, some of them in another state than asleep."""
    return tuple(
        replace(one, record=replace(one.record, looks=tuple(replace(look, state=state) for look in one.record.looks)))
        if one.record.rank in ranks
        else one
        for one in processes(range(4), 4)
    )


def with_settings(
    made: Iterable[Sourced[JobProcess]], of_rank: Mapping[int, tuple[tuple[str, str], ...]]
) -> tuple[Sourced[JobProcess], ...]:
    return tuple(
        replace(one, record=replace(one.record, settings=of_rank.get(one.record.rank or 0, ()))) for one in made
    )


def short(verdict: Verdict) -> tuple[Cause, tuple[int, ...], Confidence]:
    return verdict.cause, verdict.guilty_ranks, verdict.confidence


# --- stopped ---


def test_a_stopped_rank_is_proven_by_the_kernel_wherever_it_was() -> None:
    loading = (Frame("_try_get_data", DATALOADER, 1200), Frame("train", TRAIN, 1))
    for place in (loading, (Frame("profile", TRAIN, 7),), WAITING):
        found = both_looks({1: place, **dict.fromkeys((0, 2, 3), WAITING)})
        verdict = analyze(evidence(processes=in_state("T", 1), stacks=found)).verdict
        assert short(verdict) == (Cause.STUCK_IN_PYTHON, (1,), Confidence.CERTAIN)
        assert verdict.summary.startswith("Rank 1 is stopped by a signal (state T)")
        assert verdict.next_steps == ("on its host: kill -CONT 1001",)
        assert verdict.victims == "0,2-3"


@pytest.mark.parametrize("state", ["t", "S", "D", "R"])
def test_a_traced_rank_is_not_a_stopped_one(state: str) -> None:
    found = both_looks(dict.fromkeys(range(4), WAITING))
    assert analyze(evidence(processes=in_state(state, 1), stacks=found)).verdict.guilty_ranks == ()


def test_a_rank_that_went_on_between_the_looks_is_not_stopped() -> None:
    (one,) = (one for one in in_state("T", 1) if one.record.rank == 1)
    went_on = replace(
        one, record=replace(one.record, looks=(one.record.looks[0], replace(one.record.looks[1], state="R")))
    )
    others = [other for other in processes(range(4), 4) if other.record.rank != 1]
    found = both_looks(dict.fromkeys(range(4), WAITING))
    assert analyze(evidence(processes=(went_on, *others), stacks=found)).verdict.guilty_ranks == ()


# --- gone ---

ALIVE = {"processes": processes((0, 2, 3), 4), "stacks": both_looks(dict.fromkeys((0, 2, 3), WAITING))}


def test_a_rank_whose_log_lies_beside_and_whose_process_is_gone() -> None:
    report = analyze(evidence(**ALIVE, speakers=(spoke(1),)))
    assert short(report.verdict) == (Cause.RANK_EXITED, (1,), Confidence.POSSIBLE)
    assert report.verdict.evidence[0].quote == "step 9 loss 1"
    assert {rank.rank: rank.doing for rank in report.ranks}[1] == "its process is gone"


def test_its_last_words_tell_how_it_went() -> None:
    left = analyze(evidence(**ALIVE, log_events=(said(1, Left(how="training finished")),))).verdict
    assert short(left) == (Cause.RANK_EXITED, (1,), Confidence.PROBABLE)
    assert left.victims == "0,2-3"
    crash = Raised(exception="Fatal Python error", message="Segmentation fault", failure=Failure.PYTHON)
    assert short(analyze(evidence(**ALIVE, log_events=(said(1, crash),))).verdict)[:2] == (Cause.RANK_CRASHED, (1,))


def test_a_rank_without_process_and_log_may_be_elsewhere() -> None:
    assert analyze(evidence(**ALIVE)).verdict.cause is Cause.INCONCLUSIVE


def test_the_kernel_killed_the_one_that_is_gone() -> None:
    path = "hosts/node1/kernel_log/kernel.log"
    kernel = Artifact(path=path, kind=Kind.KERNEL_LOG, host="node1", origin="dmesg")
    kill = OomKill(
        pid=1001, command="python", cgroup=None, anon_rss_kb=1, line=7, when="now", quote="Killed process 1001"
    )
    verdict = analyze(evidence(**ALIVE, speakers=(spoke(1),), oom_kills=(Sourced(kernel, kill),))).verdict
    assert short(verdict)[:2] == (Cause.RANK_OOM_KILLED, (1,))
    another = Sourced(kernel, replace(kill, pid=5000))
    verdict = analyze(evidence(**ALIVE, speakers=(spoke(1),), oom_kills=(another,))).verdict
    assert verdict.cause is Cause.RANK_EXITED


# --- left, while the others lost it ---


def lost(rank: int) -> tuple[Sourced[LogEvent], ...]:
    echo = Raised(exception="RuntimeError", message="Connection closed by peer", failure=Failure.CONNECTION_ECHO)
    return said(rank, PeerLost(reason="Connection closed by peer")), said(rank, echo)


def test_of_ranks_that_lost_a_connection_the_one_that_is_through_is_to_blame() -> None:
    events = (*lost(0), *lost(2), *lost(3), said(1, Left(how="training finished")))
    verdict = analyze(evidence(hosts=(), log_events=events)).verdict
    assert short(verdict) == (Cause.RANK_EXITED, (1,), Confidence.PROBABLE)
    assert verdict.victims == "0,2-3"


def test_when_all_are_through_nobody_is_to_blame() -> None:
    events = tuple(said(rank, Left(how="training finished")) for rank in range(4)) + lost(0)
    assert analyze(evidence(hosts=(), log_events=events)).verdict.guilty_ranks == ()


def test_a_lost_store_says_nothing_of_a_rank() -> None:
    events = (said(0, PeerLost(reason="closed", is_store=True)), said(1, Left(how="training finished")))
    assert analyze(evidence(hosts=(), log_events=events)).verdict.guilty_ranks == ()


# --- set-up ---


def in_setup(*ranks: int) -> dict[str, object]:
    return {"processes": processes(ranks, 4), "stacks": both_looks(dict.fromkeys(ranks, IN_SETUP))}


def test_a_rank_that_its_host_should_have_never_joined() -> None:
    verdict = analyze(evidence(**in_setup(0, 2, 3))).verdict
    assert short(verdict) == (Cause.RANK_NEVER_JOINED, (1,), Confidence.PROBABLE)
    assert verdict.victims == "0,2-3"


def test_ranks_that_may_be_on_a_host_nobody_asked_are_not_named() -> None:
    assert analyze(evidence(**in_setup(0, 1))).verdict.guilty_ranks == ()
    made = with_settings(processes((0, 1), 4), dict.fromkeys((0, 1), (("LOCAL_WORLD_SIZE", "4"),)))
    told = {"processes": made, "stacks": both_looks(dict.fromkeys((0, 1), IN_SETUP))}
    assert short(analyze(evidence(**told)).verdict)[:2] == (Cause.RANK_NEVER_JOINED, (2, 3))


def test_once_a_rank_is_past_the_set_up_nobody_is_said_to_be_missing_from_it() -> None:
    places = {0: IN_SETUP, 2: WAITING, 3: WAITING}
    verdict = analyze(evidence(processes=processes((0, 2, 3), 4), stacks=both_looks(places))).verdict
    assert verdict.cause is not Cause.RANK_NEVER_JOINED


def test_a_rank_with_another_world_size() -> None:
    sizes = {rank: (("WORLD_SIZE", "5" if rank == 1 else "4"),) for rank in range(4)}
    made = {"processes": with_settings(processes(range(4), 4), sizes), "stacks": both_looks({1: IN_SETUP, 0: IN_SETUP})}
    verdict = analyze(evidence(**made)).verdict
    assert short(verdict) == (Cause.INIT_MISCONFIGURED, (1,), Confidence.PROBABLE)
    assert verdict.evidence[0].quote == "WORLD_SIZE=5"


def port(node: str, device: str, state: str = "up") -> Sourced[PortLook]:
    artifact = Artifact(path=f"hosts/{node}/nic/1", kind=Kind.NIC, host=node, origin="/sys", look=1)
    return Sourced(artifact, PortLook(device=device, port=None, state=state))


def on_three_hosts(of_rank: Mapping[int, str], place: tuple[Frame, ...]) -> dict[str, object]:
    """A rank a host; each is told the interface given for it."""
    made = [replace(processes((rank,), 3, host=f"node{rank}")[0]) for rank in of_rank]
    told = {rank: (("GLOO_SOCKET_IFNAME", name),) for rank, name in of_rank.items()}
    looks = [one for rank in of_rank for one in both_looks({rank: place}, host=f"node{rank}")]
    return {
        "hosts": tuple(host(f"node{rank}") for rank in of_rank),
        "processes": with_settings(made, told),
        "stacks": tuple(looks),
    }


def test_an_interface_that_only_one_rank_uses_is_wrong_where_it_has_that_of_the_others() -> None:
    made = on_three_hosts({0: "eth1", 1: "docker0", 2: "eth1"}, IN_SETUP)
    ports = tuple(port(f"node{rank}", name) for rank in range(3) for name in ("eth1", "docker0"))
    verdict = analyze(evidence(**made, ports=ports)).verdict
    assert short(verdict) == (Cause.INIT_MISCONFIGURED, (1,), Confidence.PROBABLE)
    named_otherwise = (port("node0", "eth1"), port("node1", "docker0"), port("node2", "eth1"))
    assert analyze(evidence(**made, ports=named_otherwise)).verdict.guilty_ranks == ()


# --- a port that is down ---


def test_the_job_s_interface_is_down_on_one_host_and_all_wait() -> None:
    made = on_three_hosts(dict.fromkeys(range(3), "eth1"), WAITING)
    ports = tuple(port(f"node{rank}", "eth1", "lowerlayerdown" if rank == 1 else "up") for rank in range(3))
    verdict = analyze(evidence(**made, ports=ports)).verdict
    assert short(verdict) == (Cause.NETWORK_FAULT, (1,), Confidence.PROBABLE)
    assert verdict.guilty_hosts == ("node1",)


def test_a_port_that_the_job_does_not_use_or_a_rank_elsewhere_says_nothing() -> None:
    ports = tuple(port(f"node{rank}", "eth1", "down" if rank == 1 else "up") for rank in range(3))
    unused = on_three_hosts(dict.fromkeys(range(3), "eth0"), WAITING)
    assert analyze(evidence(**unused, ports=ports)).verdict.cause is not Cause.NETWORK_FAULT
    made = on_three_hosts(dict.fromkeys(range(3), "eth1"), WAITING)
    loading = (Frame("_try_get_data", DATALOADER, 1200), Frame("train", TRAIN, 1))
    at_work = [one for one in made["stacks"] if one.artifact.rank != 2]  # type: ignore[attr-defined]
    made["stacks"] = (*at_work, *both_looks({2: loading}, host="node2"))
    assert short(analyze(evidence(**made, ports=ports)).verdict)[:2] == (Cause.STUCK_IN_DATALOADER, (2,))
