"""The probe: finds the job's processes, runs every source in a child with a deadline, streams what they find.

In: `request.json` in the kit's directory. Out: a tar stream on standard output: `hello.json`, then each artifact as it
is read, last `host.json`. A stream that ends early still holds whole artifacts.
"""

import json
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from ncclprobe.model.evidence import Gap
from ncclprobe.model.job import JobProcess
from ncclprobe.model.manifest import Outcome
from ncclprobe.parse import processes as process_format
from ncclprobe.probe.checkup import CHECKUP, find_checks
from ncclprobe.probe.crew import Crew, Task
from ncclprobe.probe.discover import discover
from ncclprobe.probe.harvest import Harvest, messages
from ncclprobe.probe.lifeline import die_with_parent
from ncclprobe.probe.plugins import find_sources
from ncclprobe.probe.selection import Selected, Selection, select
from ncclprobe.probe.source import Context, Options, Source
from ncclprobe.probe.stream import HELLO_NAME, HOST_NAME, TarStream
from ncclprobe.probe.worker import Message

_DISCOVERY_TIMEOUT_S = 10.0


def main(directory: str, parent: int) -> None:
    """One run, from the request to the last member of the stream. `parent` is the bootstrap: we die with it."""
    request = json.loads((Path(directory) / "request.json").read_text())
    crew = Crew(time.monotonic() + request["deadline_s"], listener=sys.stdout.fileno())

    def end(*_: object) -> None:
        crew.stop()
        shutil.rmtree(directory, ignore_errors=True)
        os._exit(143)

    signal.signal(signal.SIGTERM, end)
    die_with_parent(parent, signal.SIGTERM)
    try:
        stream = TarStream(sys.stdout.buffer)
        _collect(crew, stream, request, Path(directory))
        stream.close()
    except BrokenPipeError:  # nobody listens any more
        crew.stop()
        os._exit(1)


def _collect(crew: Crew, stream: TarStream, request: dict[str, Any], directory: Path) -> None:
    stream.add_json(HELLO_NAME, {"time_ns": time.time_ns(), "hostname": socket.gethostname()})
    host, selection = request["host"], Selection(**request["selection"])
    spool = directory / "spool"
    spool.mkdir()
    harvest = Harvest(host, stream, spool)
    selected = select(_discover(crew, harvest), selection)
    if selected.others:
        harvest.gaps.append(_no_such_job(host, selection, selected))
    if not selected.candidates:  # without a rank too: the kernel log may say who killed it
        context = Context(
            host=host,
            processes=selected.processes,
            options=Options(**request["options"]),
            tools=directory / "tools",
            deadline=crew.deadline,
        )
        _run_waves(crew, harvest, context, find_checks() if request.get("purpose") == CHECKUP else find_sources())
    stream.add_json(HOST_NAME, _summary(harvest, selected))


def _discover(crew: Crew, harvest: Harvest) -> list[JobProcess]:
    """Discovery is a task as the sources are: it may be killed, and what it has found by then counts."""
    found: list[JobProcess] = []

    def take(_: str, message: Message) -> None:
        if "process" in message:
            found.append(process_format.from_fields(message["process"]))
        else:
            harvest.take("discovery", message)

    produce = partial(_discovery_messages, harvest.host, os.getpid())
    for ending in crew.run([Task(name="discovery", produce=produce, timeout_s=_DISCOVERY_TIMEOUT_S)], take):
        if ending.outcome is not Outcome.COMPLETE:
            harvest.note_failure(ending)
    return found


def _discovery_messages(host: str, own_pid: int) -> Iterator[Message]:
    found = discover(host, own_pid)
    yield from ({"process": asdict(process)} for process in found.processes)
    yield from ({"gap": asdict(gap)} for gap in found.gaps)


def _run_waves(crew: Crew, harvest: Harvest, context: Context, sources: Iterable[Source]) -> None:
    wanted = [source for source in sources if source.is_wanted(context.options)]
    for wave in sorted({source.wave for source in wanted}):
        known = replace(context, earlier=tuple(harvest.collected))
        tasks = [
            Task(
                name=source.name,
                produce=partial(messages, source, known, harvest.spool),
                timeout_s=source.time_needed_s(context.options),
            )
            for source in wanted
            if source.wave == wave
        ]
        for ending in crew.run(tasks, harvest.take):
            harvest.end(ending)


def _no_such_job(host: str, selection: Selection, selected: Selected) -> Gap:
    return Gap(
        who=host,
        what="no rank of the job",
        why=f"nothing here matches {selection}; there are: {'; '.join(selected.others)}"[:500],
        action="choose one of these with --job, if it is meant",
    )


def _summary(harvest: Harvest, selected: Selected) -> dict[str, Any]:
    return {
        "hostname": socket.gethostname(),
        "python": sys.version.split()[0],
        "job": asdict(selected.job) if selected.job else None,
        "jobs": list(selected.candidates),
        "others": list(selected.others),
        "sources": [asdict(outcome) for outcome in harvest.outcomes],
        "gaps": [asdict(gap) for gap in harvest.gaps],
    }
