"""Each rule of the lint: what breaks it, and a near miss that does not."""

from typing import Any

import pytest

from ncclprobe.model.checkup import Level, Place, RankSettings, Version
from ncclprobe.prepare.job_rules import JOB_RULES
from ncclprobe.prepare.lint import lint
from ncclprobe.prepare.rules import RULES

GOOD = {
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "2000",
    "TORCH_FR_BUFFER_SIZE": "2000",
    "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "/d/7/nccl_trace_rank_",
    "TORCH_NCCL_DEBUG_INFO_PIPE_FILE": "/d/7/pipe_rank_",
    "TORCHELASTIC_RUN_ID": "7",
    "NCCL_DEBUG": "WARN",
}
PLACE = Place(path="/d/7", is_there=True, is_writable=True, file_system="ext4", free_bytes=1 << 40)


def settings(
    rank: int | None = 0, torch: Version | None = (2, 13, 0), command: str = "", **fields: Any
) -> RankSettings:
    variables = {**GOOD, **fields.pop("variables", {})}
    variables = {name: value for name, value in variables.items() if value is not None}
    fields = {"dumps": PLACE, "pipes": PLACE, **fields}
    return RankSettings(host="node1", rank=rank, variables=variables, torch=torch, command=command, **fields)


def broken(one: RankSettings) -> set[str]:
    return {advice.rule for advice in lint([one], RULES)}


def without(*names: str) -> dict[str, None]:
    return dict.fromkeys(names)


BUFFERS = ("TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_BUFFER_SIZE")


def both(value: str) -> dict[str, str]:
    return dict.fromkeys(BUFFERS, value)


@pytest.mark.parametrize("torch", [None, (2, 2, 2), (2, 6, 0), (2, 10, 0), (2, 13, 0)])
def test_what_run_sets_is_good_for_every_torch(torch: Version | None) -> None:
    assert broken(settings(torch=torch)) == set()


@pytest.mark.parametrize(
    ("rule", "bad", "near_miss"),
    [
        ("recorder-off", {"variables": both("0")}, {"variables": both("1000")}),
        ("recorder-off", {"variables": without(*BUFFERS), "torch": (2, 10, 0)}, {"variables": without(*BUFFERS)}),
        (
            "recorder-off",
            {"variables": without(BUFFERS[0]), "torch": (2, 7, 1)},
            {"variables": without(BUFFERS[0]), "torch": (2, 8, 0)},
        ),
        ("buffer-no-number", {"variables": both("2k")}, {"variables": both(" 2000")}),
        ("buffer-in-bytes", {"variables": both("1048576")}, {"variables": both("20000")}),
        ("buffer-in-bytes", {"variables": both("65536")}, {"variables": both("16384")}),
        ("buffer-in-bytes", {"variables": both("10000000")}, {"variables": both("200000")}),
        ("buffer-small", {"variables": both("10")}, {"variables": both("100")}),
        ("buffer-twice", {"variables": {BUFFERS[1]: "500"}}, {"variables": without(BUFFERS[1])}),
        (
            "pipe-needs-old-name",
            {"variables": without(BUFFERS[0]), "torch": (2, 10, 0)},
            {"variables": without(BUFFERS[0]), "torch": (2, 11, 0)},
        ),
        ("folder-missing", {"pipes": Place(path="/p", is_there=False)}, {"pipes": None}),
        (
            "folder-missing",
            {"dumps": Place(path="/p", is_there=False)},
            {"dumps": Place(path="/p", is_there=False), "variables": without("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")},
        ),
        ("folder-closed", {"dumps": Place(path="/p", is_there=True)}, {"dumps": PLACE}),
        (
            "folder-closed",
            {"dumps": Place(path="/p", is_there=True, is_writable=True, free_bytes=0)},
            {"dumps": Place(path="/p", is_there=True, is_writable=True)},
        ),
        (
            "dumps-shared",
            {
                "dumps": Place(path="/h", is_there=True, is_writable=True, file_system="nfs4"),
                "variables": {"TORCHELASTIC_RUN_ID": "none-of-it"},
            },
            {"dumps": Place(path="/h", is_there=True, is_writable=True, file_system="nfs4")},
        ),
        (
            "dumps-lost",
            {"dumps": Place(path="/tmp", is_there=True, is_writable=True, file_system="overlay")},
            {"dumps": PLACE},
        ),
        ("dump-on-timeout-off", {"variables": {"TORCH_NCCL_DUMP_ON_TIMEOUT": "0"}}, {}),
        (
            "dump-on-timeout-off",
            {"variables": without("TORCH_NCCL_DUMP_ON_TIMEOUT"), "torch": (2, 7, 1)},
            {"variables": without("TORCH_NCCL_DUMP_ON_TIMEOUT"), "torch": (2, 8, 0)},
        ),
        (
            "blocking-wait",
            {"variables": {"TORCH_NCCL_BLOCKING_WAIT": "1"}},
            {"variables": {"TORCH_NCCL_BLOCKING_WAIT": "0"}},
        ),
        ("blocking-wait", {"variables": {"NCCL_BLOCKING_WAIT": "1"}}, {"variables": {"NCCL_BLOCKING_WAIT": "0"}}),
        (
            "no-error-handling",
            {"variables": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0"}},
            {"variables": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "3"}},
        ),
        (
            "no-monitor",
            {"variables": {"TORCH_NCCL_ENABLE_MONITORING": "0"}},
            {"variables": {"TORCH_NCCL_ENABLE_MONITORING": "1"}},
        ),
        (
            "renamed",
            {"variables": {"NCCL_ASYNC_ERROR_HANDLING": "1"}},
            {"variables": {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}},
        ),
        (
            "too-new-names",
            {"variables": {"TORCH_NCCL_DESYNC_DEBUG": "1"}, "torch": (2, 1, 2)},
            {"variables": {"NCCL_DESYNC_DEBUG": "1"}, "torch": (2, 1, 2)},
        ),
        ("nccl-timeout", {"variables": {"NCCL_TIMEOUT": "1800"}}, {"variables": {"NCCL_IB_TIMEOUT": "22"}}),
        (
            "heartbeat-short",
            {"variables": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}},
            {"variables": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "600"}},
        ),
        (
            "heartbeat-short",
            {"variables": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "900"}, "command": "x --distributed-timeout-minutes 60"},
            {"variables": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "60"}, "command": "x --ddp_timeout=30"},
        ),
        (
            "heartbeat-short",
            {"variables": {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC": "900", "DEEPSPEED_TIMEOUT": "30"}},
            {"variables": {"DEEPSPEED_TIMEOUT": "30"}},
        ),
        (
            "debug-file-shared",
            {"variables": {"NCCL_DEBUG_FILE": "/l/nccl.%h.log"}},
            {"variables": {"NCCL_DEBUG_FILE": "/l/nccl.%h.%p.log"}},
        ),
        (
            "debug-file-shared",
            {"variables": {"NCCL_DEBUG_FILE": "/l/100%%p"}},
            {"variables": {"NCCL_DEBUG_FILE": "/dev/stderr"}},
        ),
        (
            "debug-file-empty",
            {"variables": {"NCCL_DEBUG_FILE": "/l/%p", "NCCL_DEBUG": None}},
            {"variables": {"NCCL_DEBUG_FILE": "/l/%p"}},
        ),
        (
            "launch-blocking",
            {"variables": {"CUDA_LAUNCH_BLOCKING": "1"}},
            {"variables": {"CUDA_LAUNCH_BLOCKING": "0"}},
        ),
        (
            "detail",
            {"variables": {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}},
            {"variables": {"TORCH_DISTRIBUTED_DEBUG": "INFO"}},
        ),
        ("no-pipe", {"variables": without("TORCH_NCCL_DEBUG_INFO_PIPE_FILE")}, {}),
    ],
)
def test_a_rule_and_its_near_miss(rule: str, bad: dict[str, Any], near_miss: dict[str, Any]) -> None:
    assert rule in broken(settings(**bad))
    assert rule not in broken(settings(**near_miss))


def test_every_rule_is_tried_above() -> None:
    (mark,) = [mark for mark in test_a_rule_and_its_near_miss.pytestmark if mark.name == "parametrize"]  # type: ignore[attr-defined]
    assert {case[0] for case in mark.args[1]} == {rule.name for rule in RULES}
    assert len({rule.name for rule in (*RULES, *JOB_RULES)}) == len(RULES) + len(JOB_RULES)


def test_the_same_in_many_ranks_is_one_and_problems_come_first() -> None:
    ranks = [settings(rank, variables={"NCCL_TIMEOUT": "1", "NCCL_BLOCKING_WAIT": "1"}) for rank in (2, 0, 1)]
    found = lint(ranks, RULES)
    assert [(advice.level, advice.rule, advice.ranks) for advice in found] == [
        (Level.PROBLEM, "blocking-wait", (0, 1, 2)),
        (Level.NOTE, "nccl-timeout", (0, 1, 2)),
        (Level.NOTE, "renamed", (0, 1, 2)),
    ]


def test_a_shell_without_ranks_has_advice_for_nobody() -> None:
    (advice,) = lint([settings(None, variables={"NCCL_TIMEOUT": "1"}, torch=None)], RULES, JOB_RULES)
    assert (advice.rule, advice.ranks) == ("nccl-timeout", ())


def test_values_that_are_no_numbers_break_nothing() -> None:
    for value in ("", "-", "²", "1e3", "9" * 4_000, "\x00"):
        assert broken(settings(variables=both(value))) == {"buffer-no-number"}


def test_settings_that_differ_name_the_minority() -> None:
    ranks = [settings(rank, variables={"NCCL_ALGO": "Ring"} if rank == 3 else {}) for rank in range(5)]
    (advice,) = lint(ranks, (), JOB_RULES)
    assert (advice.rule, advice.ranks) == ("settings-differ", (3,))
    assert advice.text == "NCCL_ALGO differs between ranks: not set in ranks 0-2,4, =Ring in rank 3"


def test_what_belongs_to_a_host_may_differ() -> None:
    names = ("NCCL_SOCKET_IFNAME", "NCCL_DEBUG_FILE", "TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE")
    ranks = [settings(rank, variables=dict.fromkeys(names, f"/{rank}")) for rank in range(2)]
    assert lint(ranks, (), JOB_RULES) == []


def test_versions_that_differ() -> None:
    ranks = [settings(rank, torch=(2, 12 + rank // 2, 0), nccl=(2, 28, 9)) for rank in range(3)]
    (advice,) = lint(ranks, (), JOB_RULES)
    assert (advice.rule, advice.ranks) == ("versions-differ", (2,))
    assert "2.12.0 in ranks 0-1, 2.13.0 in rank 2" in advice.text
