"""Which rank of a job over hosts runs where, with which environment, and what is refused; nothing is started."""

import json
from dataclasses import replace

import pytest

from ncclprobe.model.errors import UsageError
from ncclprobe.repro import plain, supervisor
from ncclprobe.repro.catalog import all_repros, find
from ncclprobe.repro.host_facts import Facts
from ncclprobe.repro.reproducer import Repro
from ncclprobe.repro.spread import Spread, blocks, default_ranks, refuse, spread

FACTS = Facts(
    version=(3, 11), has_torch=True, has_gpu=False, address="10.0.0.1", name="node0", interface="eth0", port=4711
)
REPRO = find("mismatched-logging")


def plan(repro: Repro = REPRO, ranks: int = 5, *, fixed: bool = False, **environment: str) -> Spread:
    return spread(
        repro,
        [FACTS, replace(FACTS, address="10.0.0.2", name="node1", interface="ib0", port=1)],
        ranks=ranks,
        command=["/opt/python", repro.path.name, "--at-step=20"],
        environment=environment,
        fixed=fixed,
        run_id="demo-1",
    )


def ranks_of(request: supervisor.Request) -> list[plain.RankPlan]:
    launcher: plain.Plan = json.loads(request["argv"][-1])
    return launcher["ranks"]


@pytest.mark.parametrize(
    ("ranks", "hosts", "sizes"), [(4, 2, [2, 2]), (5, 2, [3, 2]), (4, 3, [2, 1, 1]), (3, 3, [1, 1, 1]), (2, 1, [2])]
)
def test_ranks_come_in_blocks_and_the_first_hosts_have_what_is_left(ranks: int, hosts: int, sizes: list[int]) -> None:
    found = blocks(ranks, hosts)
    assert list(map(len, found)) == sizes
    assert [rank for block in found for rank in block] == list(range(ranks))


def test_every_rank_is_told_its_numbers_and_how_to_reach_the_first_host() -> None:
    found = plan()
    assert found.name == "10.0.0.1:4711"
    first, second = map(ranks_of, found.requests)
    assert [one["environment"]["RANK"] for one in (*first, *second)] == ["0", "1", "2", "3", "4"]
    last = second[-1]
    wanted = {"WORLD_SIZE": "5", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "10.0.0.1"}
    assert wanted.items() <= last["environment"].items()
    assert last["environment"]["MASTER_PORT"] == "4711"
    assert last["argv"] == ["/opt/python", "mismatched_logging.py", "--at-step=20"]


def test_what_a_host_is_asked_for_holds_all_it_needs() -> None:
    found = plan()
    for request in found.requests:
        assert request["argv"][:4] == ["/opt/python", "-I", "-S", "plain.py"]
        assert set(request["files"]) == {"plain.py", "mismatched_logging.py"}
        assert "def report_fixed" in request["files"]["mismatched_logging.py"]
        assert request["follow"] == ["launcher.log", *(one["output"] for one in ranks_of(request))]
    assert found.files[4] == "logs/mismatched_logging-rank4.out"
    # Two hosts may share a file system, or be one machine: neither may take the other's for its own.
    assert len({request["directory"] for request in found.requests}) == 2
    assert len({request["token"][-12:] for request in found.requests}) == 2


def test_traffic_goes_where_the_hosts_were_reached_unless_the_user_says_otherwise() -> None:
    first, second = map(ranks_of, plan().requests)
    assert {one["environment"]["GLOO_SOCKET_IFNAME"] for one in first} == {"eth0"}
    assert {one["environment"]["GLOO_SOCKET_IFNAME"] for one in second} == {"ib0"}
    told = plan(GLOO_SOCKET_IFNAME="eth7", NCCL_DEBUG="INFO", HOME="/root")
    environment = ranks_of(told.requests[1])[0]["environment"]
    assert (environment["GLOO_SOCKET_IFNAME"], environment["NCCL_DEBUG"]) == ("eth7", "INFO")
    assert "HOME" not in environment
    assert "NCCL_SOCKET_IFNAME" not in environment


def test_harm_is_done_to_its_rank_alone_and_not_to_a_repaired_job() -> None:
    absent = plan(find("never-joined"), 4)
    assert sorted(absent.files) == [0, 2, 3]
    assert sorted(plan(find("never-joined"), 4, fixed=True).files) == [0, 1, 2, 3]
    wrong = ranks_of(plan(find("wrong-world-size"), 4).requests[0])
    assert [one["environment"]["WORLD_SIZE"] for one in wrong] == ["4", "5"]


def test_a_host_may_be_left_without_ranks() -> None:
    found = plan(find("never-joined"), 2)
    assert ranks_of(found.requests[1]) == []
    assert found.requests[1]["follow"] == ["launcher.log"]


def test_every_host_gets_a_rank() -> None:
    assert default_ranks(REPRO, 1) == REPRO.default_ranks
    assert default_ranks(REPRO, 9) == 9
    with pytest.raises(UsageError, match="2 ranks do not reach 3 hosts"):
        refuse(REPRO, 2, 3)


@pytest.mark.parametrize("name", ["host-lost", "network-partition", "wrong-interface", "oom-killed"])
def test_harm_that_is_done_from_outside_the_ranks_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=name) as caught:
        refuse(find(name), 4, 2)
    assert "without --hosts" in caught.value.advice


def test_all_others_are_not_refused() -> None:
    refused = 0
    for repro in all_repros():
        try:
            refuse(repro, 4, 2)
        except UsageError:
            refused += 1
    assert refused == 4
