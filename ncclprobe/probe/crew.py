"""Several workers at once, each with a limit of its own, none of which can hold up the others.

In: tasks. Out: their messages as they come, and for each how it ended.
"""

import select
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ncclprobe.model.manifest import Outcome
from ncclprobe.probe.worker import Message, Worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Work for one worker; `timeout_s` counts from its start."""

    name: str
    produce: Callable[[], Iterator[Message]]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a task ended, after how long, and why it did not complete."""

    name: str
    outcome: Outcome
    seconds: float
    why: str = ""


@dataclass(slots=True)
class _Running:
    task: Task
    worker: Worker
    started: float


@dataclass(slots=True)
class Crew:
    """Runs tasks. `deadline` (`time.monotonic()`) ends them all; `listener` is a descriptor of who reads our output."""

    deadline: float
    listener: int | None = None
    _running: list[_Running] = field(default_factory=list)

    def run(self, tasks: Sequence[Task], take: Callable[[str, Message], None]) -> list[Ending]:
        """Calls `take(name, message)` for each message; returns when the last task has ended, in order of ending.

        BrokenPipeError when nobody listens any more.
        """
        endings = []
        for task in tasks:
            self._running.append(_Running(task, Worker(task.produce), time.monotonic()))
        while self._running:
            ready = self._wait()
            for running in list(self._running):
                for message in running.worker.messages() if running.worker.read_fd in ready else ():
                    take(running.task.name, message)
                ending = self._ending(running)
                if ending is not None:
                    running.worker.close()
                    self._running.remove(running)
                    endings.append(ending)
        return endings

    def stop(self) -> None:
        """Ends every task at work."""
        for running in list(self._running):
            running.worker.close()

    def _wait(self) -> set[int]:
        poll = select.poll()
        for running in self._running:
            poll.register(running.worker.read_fd, select.POLLIN)
        if self.listener is not None:
            poll.register(self.listener, 0)  # POLLERR and POLLHUP always count
        limits = [self._limit(running) - time.monotonic() for running in self._running]
        ready = {fd for fd, _ in poll.poll(1000 * max(0.0, min(limits)))}
        if self.listener in ready:
            raise BrokenPipeError
        return ready

    def _limit(self, running: _Running) -> float:
        return min(running.started + running.task.timeout_s, self.deadline)

    def _ending(self, running: _Running) -> Ending | None:
        seconds = time.monotonic() - running.started
        if running.worker.has_ended:
            why = running.worker.failure or ""
            outcome = Outcome.FAILED if running.worker.failure is not None else Outcome.COMPLETE
        elif time.monotonic() >= self._limit(running):
            why, outcome = f"it did not end in {seconds:.0f} s", Outcome.TIMED_OUT
        else:
            return None
        return Ending(name=running.task.name, outcome=outcome, seconds=seconds, why=why)
