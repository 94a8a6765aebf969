"""Flight recorders of running ranks, asked for by running a few lines inside each process.

In: the ranks that have not answered in a gentler way. Out: one dump per rank and recorder. Only on request: it disturbs
the process itself for milliseconds.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ncclprobe.model.errors import NcclprobeError
from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess
from ncclprobe.parse import stacks
from ncclprobe.probe import live_dump, pyspy
from ncclprobe.probe.dump_files import asked_already
from ncclprobe.probe.source import Context, Disturbance, Found, Source

_AT_ONCE = 4


def collect(context: Context) -> Iterator[Found | Gap]:
    """After the stacks, so that a rank was looked at before it was touched, and after pipes and servers."""
    silent = [process for process in context.ranks if process.rank not in asked_already(context)]
    if not silent and context.ranks:
        return
    libraries = live_dump.InjectionLibraries(
        injector=context.tools / "injector.so", code=context.tools / "injection.so"
    )
    if not (libraries.injector.exists() and libraries.code.exists()):
        yield Gap(
            who=context.host,
            what="no live dumps",
            why="the injection libraries for this machine's architecture did not come along",
            action="run ncclprobe on a controller of the same architecture, with hypno and pyinjector installed",
        )
        return
    spy = pyspy.find(context.tools)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for answers in pool.map(lambda process: list(_ask(process, libraries, spy)), silent):
            yield from answers


def _ask(process: JobProcess, libraries: live_dump.InjectionLibraries, spy: Path | None) -> Iterator[Found | Gap]:
    start_ns = time.time_ns()
    try:
        answer = live_dump.ask(process.pid, libraries, is_gil_held=lambda: _is_gil_held(process.pid, spy))
    except NcclprobeError as error:
        yield Gap(who=f"rank {process.rank}", what="no live dump", why=str(error), action=error.advice)
        return
    for problem in answer.problems:
        why = f"one of its recorders failed: {problem}"
        yield Gap(who=f"rank {process.rank}", what="part of the live dump", why=why, action="the rest is there")
    for recorder, data in sorted(answer.dumps.items()):
        yield Found(
            file=f"rank{process.rank}.{recorder}.dump",
            kind=Kind.FLIGHT_RECORDER,
            origin=f"flight recorder {recorder} of pid {process.pid}, asked through thread {answer.thread}",
            data=data,
            rank=process.rank,
            pid=process.pid,
            start_ns=start_ns,
            end_ns=time.time_ns(),
            pause_s=answer.pause_s,
        )


def _is_gil_held(pid: int, spy: Path | None) -> bool | None:
    if spy is None:
        return None
    look = pyspy.dump(spy, pid, blocking_first=False, native=False)
    try:
        threads = [thread for dump in stacks.parse(look.output).records for thread in dump.threads]
    except NcclprobeError:
        return None
    return any(thread.owns_gil for thread in threads)


SOURCE = Source(
    name="live_dump",
    disturbs=Disturbance.INJECTION,
    collect=collect,
    wave=4,
    is_wanted=lambda options: options.live_dump,
)
