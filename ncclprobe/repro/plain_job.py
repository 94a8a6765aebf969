"""How a job of plain processes is started: on this machine, or on hosts made of namespaces.

In: a `Repro`, its program and options. Out: a `PlainJob`: the launcher's command line, and the name of the job.
"""

import json
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.repro import made_hosts, needs, plain
from ncclprobe.repro.reproducer import Repro

_HOSTS_PORT = 29500  # in a network of its own nobody else has it


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainJob:
    """`name`: MASTER_ADDR:MASTER_PORT, by which such a job is told from others."""

    argv: list[str]
    name: str


def plan(
    repro: Repro, program: Sequence[str], *, ranks: int, at_step: int, fixed: bool, cgroups: Iterable[str]
) -> PlainJob:
    """The harm is done unless it is `fixed`. `cgroups` are those of the ranks of `repro.memory_mib`, in its order."""
    address = made_hosts.address(0) if repro.hosts else "127.0.0.1"
    port = _HOSTS_PORT if repro.hosts else _free_port()
    limited = dict(zip(repro.memory_mib, cgroups, strict=True))
    absent = () if fixed else repro.harm.absent_ranks
    plans = [
        _rank(repro, program, rank, ranks, fixed=fixed, cgroups=[limited[rank]] if rank in limited else [])
        for rank in range(ranks)
        if rank not in absent
    ]
    for one in plans:
        one["environment"] = {"MASTER_ADDR": address, "MASTER_PORT": str(port), **one["environment"]}
    if not repro.hosts:
        return PlainJob(argv=_launcher(plans), name=f"{address}:{port}")
    argv = _on_hosts(repro, plans, ranks, at_step, fixed=fixed)
    return PlainJob(argv=argv, name=f"{address}:{port}")


def _rank(
    repro: Repro, program: Sequence[str], rank: int, ranks: int, *, fixed: bool, cgroups: list[str]
) -> plain.RankPlan:
    """Each host has as many ranks as the next, one after the other, like `srun --distribution=block`."""
    here = ranks // max(repro.hosts, 1)
    network = {"GLOO_SOCKET_IFNAME": made_hosts.DATA_NIC} if repro.hosts else {}
    numbers = Numbers(rank=rank, ranks=ranks, local_rank=rank % here, local_ranks=here)
    output = f"logs/{repro.path.stem}-{rank}.out"  # as `srun --output=logs/%x-%t.out`
    return rank_plan(repro, [sys.executable, *program], numbers, network, output=output, fixed=fixed, cgroups=cgroups)


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """Which rank it is, of how many, and the same on its own host."""

    rank: int
    ranks: int
    local_rank: int
    local_ranks: int


def rank_plan(
    repro: Repro,
    command: Sequence[str],
    numbers: Numbers,
    environment: Mapping[str, str],
    *,
    output: str,
    fixed: bool,
    cgroups: Iterable[str] = (),
) -> plain.RankPlan:
    """One rank as srun starts it, with `environment`; the harm that is done to its own is done unless it is `fixed`."""
    wrong = {} if fixed else repro.harm.environment.get(numbers.rank, {})
    return plain.RankPlan(
        argv=list(command),
        environment={
            "RANK": str(numbers.rank),
            "WORLD_SIZE": str(numbers.ranks),
            "LOCAL_RANK": str(numbers.local_rank),
            "LOCAL_WORLD_SIZE": str(numbers.local_ranks),
            "PYTHONUNBUFFERED": "1",  # as `srun --unbuffered`
            **environment,
            **wrong,
        },
        output=output,
        cgroups=list(cgroups),
    )


def _on_hosts(repro: Repro, plans: list[plain.RankPlan], ranks: int, at_step: int, *, fixed: bool) -> list[str]:
    here = ranks // repro.hosts
    of_host: list[list[plain.RankPlan]] = [[] for _ in range(repro.hosts)]
    for one in plans:
        of_host[int(one["environment"]["RANK"]) // here].append(one)
    plan = made_hosts.Plan(
        launchers=[_launcher(those) for those in of_host],
        sshd=needs.find_tool("sshd") or "sshd",
        links_down=[] if fixed else list(repro.harm.links_down),
        at_step=at_step,
    )
    unshare = ["unshare", "--net", "--pid", "--mount", "--fork", "--mount-proc", "--kill-child=KILL"]
    return [*unshare, sys.executable, "-I", "-S", made_hosts.__file__, json.dumps(plan)]


def _launcher(plans: list[plain.RankPlan]) -> list[str]:
    return [sys.executable, "-I", "-S", plain.__file__, json.dumps(plain.Plan(ranks=plans))]


def _free_port() -> int:
    """A port that nobody listens on. Between this and the start of rank 0 another program may take it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def entering(launcher_pid: int) -> list[str]:
    """What a command must be prefixed with to reach the made hosts: it joins their network, and nothing else."""
    inner = Path(f"/proc/{launcher_pid}/task/{launcher_pid}/children").read_text().split()
    if not inner:
        raise NcclprobeError("the made hosts are gone", "run it again")
    return ["nsenter", f"--target={inner[0]}", "--net", "--"]
