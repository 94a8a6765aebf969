"""Start a reproducer's job over hosts, as srun does.

In: a `Repro`, hosts and options. Out: a `HostsJob` of real processes on all of them. The program, its launcher and its
supervisor go along; each host needs a Python with torch.
"""

import json
import threading
import time
import uuid
from collections.abc import Sequence
from pathlib import Path

from ncclprobe.repro import supervisor
from ncclprobe.repro.host_facts import look_at
from ncclprobe.repro.hosts_job import HostsJob
from ncclprobe.repro.launch import check_sense, options, own_environment, started_ranks
from ncclprobe.repro.places import Place, Script, at_each
from ncclprobe.repro.remote_supervisor import RemoteSupervisor
from ncclprobe.repro.reproducer import DEFAULT_STEP, Repro
from ncclprobe.repro.spread import refuse, spread

_LONGEST_S = 30 * 86_400.0


def launch_on_hosts(
    repro: Repro,
    places: Sequence[Place],
    *,
    ranks: int,
    python: str,
    at_step: int = DEFAULT_STEP,
    fixed: bool = False,
    backend: str = "auto",
) -> HostsJob:
    """Start `repro` on `ranks` ranks in all, run by the hosts' `python`; as `launch` else.

    Raises UsageError for a request that makes no sense, or for a host that lacks what it needs; NcclprobeError for one
    that cannot be reached. Then nothing runs.
    """
    check_sense(repro, ranks, at_step)
    refuse(repro, ranks, len(places))
    facts = look_at(places, python, repro)
    run_id = f"{repro.name}-{uuid.uuid4().hex[:12]}"
    plan = spread(
        repro,
        facts,
        ranks=ranks,
        command=[python, repro.path.name, *options(repro, at_step, fixed=fixed, backend=backend)],
        environment=own_environment(),
        fixed=fixed,
        run_id=run_id,
    )
    changed = threading.Condition()
    request_of = dict(zip(places, plan.requests, strict=True))
    supervisors = at_each(
        places,
        lambda place: _supervise(place, request_of[place], python, changed),
        RemoteSupervisor.close,
    )
    return HostsJob(
        supervisors,
        changed,
        plan.files,
        run_id=run_id,
        name=plan.name,
        at_step=at_step,
        started=started_ranks(repro, ranks, fixed=fixed),
    )


def _supervise(
    place: Place, request: supervisor.Request, python: str, changed: threading.Condition
) -> RemoteSupervisor:
    script = Script(
        python=python,
        flags="-I -S -B",
        source=Path(supervisor.__file__).read_bytes(),
        text=json.dumps(request) + "\n",
    )
    process = place.start(script.command, script.payload, time.monotonic() + _LONGEST_S)
    return RemoteSupervisor(place.name, process, request["follow"], changed)
