"""Parsing in worker processes with limits, because a hostile file can ask for any amount of memory or time.

In: parsers and functions that give their bytes. Out: for each, in order, what was parsed or the error that it is.

A worker has one file at a time, so it is plain which one was too much for it: that file is given up and its worker
replaced. Workers are killed when the generator ends, and end by themselves should this process die. Where other threads
run, workers are new interpreters (`spawn`) and import the main module: a script needs `if __name__ == "__main__":`.
"""

import math
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from ncclprobe.model.errors import NcclprobeError, ParseError
from ncclprobe.parse import isolated_worker
from ncclprobe.parse.isolated_worker import Parser
from ncclprobe.parse.parsed import Parsed

Result = Parsed[Any] | NcclprobeError
Job = tuple[Parser, Callable[[], bytes | Path]]

WALL_SECONDS = 30
_EXIT_SECONDS = 5
_MAX_WORKERS = 8
_MAX_AHEAD = 64  # how many results wait in memory for an earlier, slower one


def parse_isolated(jobs: Iterable[Job]) -> Generator[Result, None, None]:
    """One result per job, in order. Never raises for what a file does: it ends as a ParseError, the others go on."""
    pool = _Pool(min(_MAX_WORKERS, len(os.sched_getaffinity(0))))
    given = taken = 0
    try:
        for parser, read in jobs:
            try:
                pool.give(given, parser, read())
            except NcclprobeError as error:
                pool.results[given] = error
            given += 1
            while taken in pool.results or given - taken > _MAX_AHEAD:
                yield pool.take(taken)
                taken += 1
        for number in range(taken, given):
            yield pool.take(number)
    finally:
        pool.close()


@dataclass(slots=True, eq=False)
class _Worker:
    """`job` is the number of the file it has; it is given up at `deadline_s` of the monotonic clock."""

    process: BaseProcess
    connection: Connection
    job: int | None = None
    deadline_s: float = math.inf


class _Pool:
    """At most `size` workers, started as they are needed. `results` holds what is done under the number of the job."""

    def __init__(self, size: int) -> None:
        self.results: dict[int, Result] = {}
        self._size = size
        self._workers: list[_Worker] = []
        self._method = _start_method()

    def give(self, number: int, parser: Parser, data: bytes | Path) -> None:
        """Hand a job to a worker, as soon as one is free."""
        while (worker := self._free_worker()) is None:
            self._wait()
        longer_s = isolated_worker.cpu_seconds(data) - isolated_worker.CPU_SECONDS
        worker.job, worker.deadline_s = number, time.monotonic() + WALL_SECONDS + 2 * longer_s
        try:
            worker.connection.send((parser, data))
        except OSError:
            self._give_up(worker)

    def take(self, number: int) -> Result:
        """The result of a job that was given, once it is there."""
        while number not in self.results:
            self._wait()
        return self.results.pop(number)

    def close(self) -> None:
        """End all workers, whatever they do."""
        for worker in self._workers:
            _end(worker)
        self._workers.clear()

    def _free_worker(self) -> _Worker | None:
        idle = next((worker for worker in self._workers if worker.job is None), None)
        if idle is None and len(self._workers) < self._size:
            idle = self._start()
        return idle

    def _start(self) -> _Worker | None:
        """A new worker, or None when the system allows no more than there are; ParseError when there are none."""
        context: Any = multiprocessing.get_context(self._method)
        ours, theirs = context.Pipe()
        inherited = [ours, *(worker.connection for worker in self._workers)] if self._method == "fork" else []
        process = context.Process(target=isolated_worker.work, args=(theirs, inherited), daemon=True)
        # Ctrl-C is the parent's alone, also before the worker has come to ignore it.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            process.start()
        except OSError as error:
            ours.close()
            if not self._workers:
                raise ParseError(f"no process to read it in can be started: {error.strerror}") from error
            self._size = len(self._workers)
            return None
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            theirs.close()
        self._workers.append(_Worker(process, ours))
        return self._workers[-1]

    def _wait(self) -> None:
        """Until a worker has answered, has died, or is out of time."""
        busy = [worker for worker in self._workers if worker.job is not None]
        left_s = min(worker.deadline_s for worker in busy) - time.monotonic()
        ready = wait([worker.connection for worker in busy], max(0.0, left_s))
        for worker in busy:
            if worker.connection in ready:
                self._receive(worker)
            elif worker.deadline_s <= time.monotonic():
                self._give_up(worker)

    def _receive(self, worker: _Worker) -> None:
        try:
            result = worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(_EXIT_SECONDS)
            self._give_up(worker)
            return
        if worker.job is not None:
            self.results[worker.job] = result
        worker.job, worker.deadline_s = None, math.inf

    def _give_up(self, worker: _Worker) -> None:
        """Its file gets the reason; whether the worker ended by itself or not, it ends now."""
        if worker.job is not None:
            self.results[worker.job] = ParseError(f"refused: {_reason(worker.process.exitcode)}")
        self._workers.remove(worker)
        _end(worker)


def _start_method() -> str:
    """Forking takes milliseconds, but copies locks that other threads, Python's or not, may hold."""
    return "fork" if len(os.listdir("/proc/self/task")) == 1 else "spawn"


def _end(worker: _Worker) -> None:
    worker.process.kill()
    worker.process.join(_EXIT_SECONDS)
    worker.connection.close()


def _reason(exit_status: int | None) -> str:
    """`exit_status` as `multiprocessing` has it: minus the signal, None while the process lives."""
    if exit_status is None:
        return f"reading it takes more than {WALL_SECONDS} s"
    if exit_status == -signal.SIGPROF:
        return f"reading it takes more than {isolated_worker.CPU_SECONDS:g} s of processor time"
    if exit_status == -signal.SIGKILL:
        return "the process that read it was killed, most likely for memory"
    return f"it crashed the process that read it (exit status {exit_status})"
