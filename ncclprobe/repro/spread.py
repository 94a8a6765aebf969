"""Which rank of a job runs on which host, and what each host is asked for.

In: a `Repro`, hosts and what they have. Out: a `Spread`: a supervisor's request for each host. Starts nothing.

Ranks come in blocks, one host after the other, as `srun --distribution=block` has them; where they do not divide
evenly, the first hosts have one more.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from ncclprobe.model.errors import UsageError
from ncclprobe.repro import plain, supervisor
from ncclprobe.repro.host_facts import Facts, master_address
from ncclprobe.repro.job_logs import LAUNCHER_LOG
from ncclprobe.repro.plain_job import Numbers, rank_plan
from ncclprobe.repro.reproducer import Repro

_PLAIN = "plain.py"
_OUTPUT = (
    "logs/{program}-rank{rank}.out"  # as `srun --output=logs/%x-rank%t.out`: told from other numbers if but one lives
)
_TRAVELLING_PREFIXES = ("GLOO_", "NCCL_", "TORCH_")  # what is set for a job here is meant for it there


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A request per host, in their order, and the name of the job; `files`: rank -> where its output goes."""

    requests: tuple[supervisor.Request, ...]
    name: str
    files: Mapping[int, str]


def default_ranks(repro: Repro, hosts: int) -> int:
    """How many ranks to start where nobody says: at least one per host."""
    return max(repro.default_ranks, hosts)


def refuse(repro: Repro, ranks: int, hosts: int) -> None:
    """UsageError for what cannot be done over hosts."""
    if repro.hosts:
        what = f"{repro.name} harms a network, and makes hosts of its own for that"
        raise UsageError(what, "run it without --hosts, as root")
    if repro.memory_mib:
        what = f"{repro.name} limits the memory of a rank, which is not done to other hosts"
        raise UsageError(what, "run it without --hosts, as root")
    if ranks < hosts:
        raise UsageError(
            f"{ranks} ranks do not reach {hosts} hosts", f"ask for --ranks {hosts} or more, or name fewer hosts"
        )


def blocks(ranks: int, hosts: int) -> list[range]:
    """The ranks of each host: `blocks(5, 2)` is 0 to 2, and 3 to 4."""
    share, extra = divmod(ranks, hosts)
    starts = [host * share + min(host, extra) for host in range(hosts + 1)]
    return [range(start, end) for start, end in pairwise(starts)]


def spread(
    repro: Repro,
    facts: Sequence[Facts],
    *,
    ranks: int,
    command: Sequence[str],
    environment: Mapping[str, str],
    fixed: bool,
    run_id: str,
) -> Spread:
    """The job over hosts with these `facts`. `command`: Python, program, options; `environment`: of this machine."""
    address, port = master_address(facts), facts[0].port
    given = {name: value for name, value in environment.items() if name.startswith(_TRAVELLING_PREFIXES)}
    common = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    absent = () if fixed else repro.harm.absent_ranks
    plans = [
        [
            rank_plan(
                repro,
                command,
                Numbers(rank=rank, ranks=ranks, local_rank=rank - block.start, local_ranks=len(block)),
                {**common, **_network(host), **given},
                output=_OUTPUT.format(program=repro.path.stem, rank=rank),
                fixed=fixed,
            )
            for rank in block
            if rank not in absent
        ]
        for block, host in zip(blocks(ranks, len(facts)), facts, strict=True)
    ]
    return Spread(
        requests=tuple(_request(repro, those, command[0], f"{run_id}-{host}") for host, those in enumerate(plans)),
        name=f"{address}:{port}",
        files={int(one["environment"]["RANK"]): one["output"] for those in plans for one in those},
    )


def _network(host: Facts) -> dict[str, str]:
    """Of its own, gloo takes the interface of the host's own name, which many hosts have on their loopback."""
    return {"GLOO_SOCKET_IFNAME": host.interface} if host.interface and not host.is_loopback else {}


def _request(repro: Repro, plans: list[plain.RankPlan], python: str, token: str) -> supervisor.Request:
    """Its directory is not named after the run alone: two hosts may be one machine, or share a file system."""
    sources = {repro.path.name: repro.path, _PLAIN: Path(plain.__file__)}
    return supervisor.Request(
        directory=f"ncclprobe-{token}",
        files={name: path.read_text(encoding="utf-8") for name, path in sources.items()},
        argv=[python, "-I", "-S", _PLAIN, json.dumps(plain.Plan(ranks=plans))],
        token=token,
        log=LAUNCHER_LOG,
        cgroups={},
        follow=[LAUNCHER_LOG, *(plan["output"] for plan in plans)],
    )
