"""The job's processes on one host, as the probe's `processes` source writes them, or as /proc tells them to a person.

In: its JSON, `{"processes": [...]}`, else text of `/proc/PID/status`. Out: `JobProcess`es with their looks.
"""

from typing import Any

from ncclprobe.model.job import JobKey, JobProcess, ProcessLook, Role
from ncclprobe.parse import fields, process_status
from ncclprobe.parse.parsed import Parsed
from ncclprobe.parse.text import clean

_HEAD_BYTES = 64 << 10


def parse(data: bytes) -> Parsed[JobProcess]:
    """All processes; ParseError when the JSON is damaged, a problem for damaged ones."""
    if process_status.is_status(data[:_HEAD_BYTES]):
        return process_status.parse(data)
    return fields.records(data, "processes", from_fields)


def from_fields(item: dict[str, Any]) -> JobProcess:
    """One process from its JSON object; ValueError or KeyError when it is damaged."""
    job = item.get("job") or {}
    return JobProcess(
        pid=fields.required(item, "pid"),
        role=Role(item["role"]),
        rank=fields.whole(item, "rank"),
        local_rank=fields.whole(item, "local_rank"),
        world_size=fields.whole(item, "world_size"),
        job=JobKey(
            run_id=fields.text(job, "run_id"),
            master=fields.text(job, "master"),
            scheduler_id=fields.text(job, "scheduler_id"),
        ),
        command=fields.text(item, "command"),
        user=fields.text(item, "user"),
        parent_pid=fields.whole(item, "parent_pid"),
        inner_pid=fields.whole(item, "inner_pid"),
        looks=tuple(_look(look) for look in item.get("looks") or ()),
        settings=tuple(_setting(pair) for pair in item.get("settings") or ()),
    )


def _setting(pair: Any) -> tuple[str, str]:
    name, value = pair
    if not isinstance(name, str) or not isinstance(value, str):
        raise TypeError("a setting is a name and a value")
    return clean(name, 128), clean(value, 256)


def _look(look: dict[str, Any]) -> ProcessLook:
    return ProcessLook(
        time_ns=fields.required(look, "time_ns"),
        state=fields.text(look, "state", 1),
        wchan=fields.text(look, "wchan", 64) or None,
        cpu_s=fields.number(look, "cpu_s") or 0.0,
        threads=fields.required(look, "threads"),
        main_run_ns=fields.whole(look, "main_run_ns"),
    )
