"""Stacks of a live process.

In: nothing. Out: `Thread` and `StackDump`, one process at one look, and what its stacks tell of its part in the job.
"""

import re
from dataclasses import dataclass

from ncclprobe.model.frames import Stack

# What frameworks call their processes: `sglang::scheduler_DP3_TP13`, `VLLM::Worker_TP1`, `Worker_TP1_EP1`.
_TITLE = re.compile(r"(?:^|[\s:/])(?:scheduler|(?:vllm)?worker\w*?)((?:_[A-Z]{2,4}\d{1,6})+)(?:[\s:]|$)", re.IGNORECASE)
_COORDINATE = re.compile(r"_([A-Z]{2,4})(\d+)")
_LAUNCHERS = (
    ("torch/distributed/elastic/agent/server/api.py", ("run", "_invoke_run", "_monitor_workers", "_exit_barrier")),
    ("torch/distributed/elastic/multiprocessing/api.py", ("wait", "_poll")),
    ("torch/multiprocessing/spawn.py", ("join", "start_processes")),
    ("deepspeed/launcher/launch.py", ("main",)),
    ("deepspeed/launcher/runner.py", ("main",)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread. `is_active`: on a CPU when sampled; `owns_gil`: it held the interpreter lock; None is not told."""

    name: str
    tid: int | None
    stack: Stack
    is_active: bool | None = None
    owns_gil: bool | None = None
    waits_for_gil: bool | None = None

    @property
    def has_python(self) -> bool:
        """Whether any frame is Python's: a debugger of C code shows none."""
        return any(not frame.is_native for frame in self.stack)

    @property
    def is_first(self) -> bool:
        """Whether it runs the program itself: its outermost Python frame is no thread's start."""
        outermost = next((frame for frame in reversed(self.stack) if not frame.is_native), None)
        return outermost is not None and outermost.short_function == "<module>"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDump:
    """Threads of a process. `rank` and `local_rank`: what a launcher's prefix of the lines says; None without one.

    `host` too; `command`: the process's command line or title; `parent_pid`: of a process that is said to be a child.
    """

    pid: int | None
    threads: tuple[Thread, ...]
    rank: int | None = None
    local_rank: int | None = None
    host: str = ""
    command: str = ""
    parent_pid: int | None = None

    @property
    def main(self) -> Thread | None:
        """The main thread, when it can be told."""
        named = {thread.name: thread for thread in reversed(self.threads)}
        of_pid = (thread for thread in self.threads if thread.tid is not None and thread.tid == self.pid)
        first = next((thread for thread in self.threads if thread.is_first), None)
        only = self.threads[0] if len(self.threads) == 1 else None
        return named.get("MainThread") or next(of_pid, None) or named.get("pt_main_thread") or first or only

    @property
    def is_worker(self) -> bool:
        """Whether it loads data for a rank: a forked worker carries its parent's frames below `_worker_loop`."""
        main = self.main
        return main is not None and any(
            frame.short_function == "_worker_loop" and "/data/" in frame.file for frame in main.stack
        )

    @property
    def is_launcher(self) -> bool:
        """Whether it only starts and watches ranks, as torchrun does."""
        main = self.main
        return main is not None and any(
            frame.file.endswith(file) and frame.short_function in names
            for frame in main.stack
            for file, names in _LAUNCHERS
        )

    @property
    def coordinates(self) -> dict[str, int]:
        """What the process's title says of its place: `{"PP": 1, "TP": 0}`; empty when it says nothing."""
        found = _TITLE.search(self.command)
        return {name.upper(): int(number) for name, number in _COORDINATE.findall(found[1].upper())} if found else {}

    @property
    def rank_hint(self) -> int | None:
        """The global rank that the title tells by itself; None where sizes of the groups would be needed.

        SGLang counts TP over all attention replicas, so `DP3_TP13` is rank 13; in vLLM each DP replica is a job.
        """
        places = self.coordinates
        if "TP" not in places or (places.get("DP", 0) and "scheduler" not in self.command.lower()):
            return None
        return places["TP"] if places.get("PP", 0) == 0 else None
