"""What a source is given in a test.

In: real processes. Out: a `Context` with them in the roles of a job.
"""

import time
from pathlib import Path
from typing import Any

from ncclprobe.model.evidence import Gap
from ncclprobe.model.job import JobKey, JobProcess, Role
from ncclprobe.probe.source import Context, Found, Options, Source

JOB = JobKey(run_id="run1")


def process(pid: int, rank: int | None = 0, role: Role = Role.RANK, local_rank: int | None = None) -> JobProcess:
    return JobProcess(
        pid=pid, role=role, rank=rank, local_rank=local_rank, world_size=2, job=JOB, command="python", user="ann"
    )


def context(*processes: JobProcess, tools: Path = Path("/none"), deadline_s: float = 60, **fields: Any) -> Context:
    options = fields.pop("options", Options(interval_s=0.1))
    deadline = time.monotonic() + deadline_s
    return Context(host="node1", processes=processes, options=options, tools=tools, deadline=deadline, **fields)


def collect(source: Source, given: Context) -> tuple[list[Found], list[Gap]]:
    """All that it yields, sorted by kind."""
    items = list(source.collect(given))
    return [item for item in items if isinstance(item, Found)], [item for item in items if isinstance(item, Gap)]
