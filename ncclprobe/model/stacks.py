"""Stacks of a live process.

In: nothing. Out: `Thread` and `StackDump`, one process at one look.
"""

from dataclasses import dataclass

from ncclprobe.model.frames import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Thread:
    """One thread. `is_active`: on a CPU when sampled; `owns_gil`: it held the interpreter lock."""

    name: str
    tid: int | None
    stack: Stack
    is_active: bool | None = None
    owns_gil: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StackDump:
    """All Python threads of a process."""

    pid: int | None
    threads: tuple[Thread, ...]

    @property
    def main(self) -> Thread | None:
        """The main thread, when it can be told."""
        named = [thread for thread in self.threads if thread.name == "MainThread"]
        return named[0] if named else next((t for t in self.threads if t.tid == self.pid), None)
