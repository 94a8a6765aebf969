"""What the ranks of a reproducer's job have printed.

In: the job's private directory; torchrun keeps `logs/<run>/attempt_0/<rank>/{stdout,stderr}.log` in it, and plain
processes write both to `logs/<program>-<rank>.out`. Out: how far each rank has come, what it said, and why the job
failed. Files that are not there yet, or no more, count as empty.
"""

import re
from abc import ABC, abstractmethod
from pathlib import Path

LAUNCHER_LOG = "launcher.log"
TAIL_BYTES = 4096
_STEP = re.compile(r"^step (\d+)\b", re.MULTILINE)
_JOINING = re.compile(r"^joining as rank \d+ of \d+$", re.MULTILINE)
# The last line of a Python traceback: an exception's name, and mostly a message.
_EXCEPTION = re.compile(r"^(?:\[rank\d+\]:\s*)?([\w.]*(?:Error|Exception|Interrupt|Exit)\b.*)$", re.MULTILINE)


class Logs(ABC):
    """What is read out of the output of the ranks of one job, anew at each call, wherever it is kept."""

    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """Size in bytes of each rank's output: while it changes, the job makes progress."""

    @abstractmethod
    def files(self) -> dict[str, bytes]:
        """All that was printed: a relative path, as a person would keep it, and what the file holds."""

    @abstractmethod
    def _tails(self, stream: str) -> dict[int, str]:
        """Rank -> the end of its output; `stream` is stdout or stderr, where the two are apart."""

    @abstractmethod
    def _launcher_tail(self) -> str:
        """The end of what the launcher itself has printed."""

    def steps(self) -> dict[int, int]:
        """Rank -> the last step that it says it has finished. Ranks that have finished none are missing."""
        found = {rank: _STEP.findall(tail) for rank, tail in self._tails("stdout").items()}
        return {rank: int(steps[-1]) for rank, steps in found.items() if steps}

    def joining(self) -> set[int]:
        """Ranks that say that they go into the set-up of the job."""
        return {rank for rank, tail in self._tails("stdout").items() if _JOINING.search(tail)}

    def failure(self) -> str:
        """One line on why the job failed: an exception of the first rank with one, else the launcher's last word."""
        for rank, tail in sorted(self._tails("stderr").items()):
            if exceptions := _EXCEPTION.findall(tail):
                return f"rank {rank}: {exceptions[-1]}"
        lines = self._launcher_tail().split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip(" =-")), "")


class JobLogs(Logs):
    """The output files of a job on this machine."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _paths(self, name: str) -> dict[int, Path]:
        paths = {path.parent.name: path for path in sorted(self._directory.glob(f"logs/*/attempt_*/*/{name}"))}
        paths |= {path.stem.rpartition("-")[2]: path for path in self._directory.glob("logs/*.out")}
        return {int(rank): path for rank, path in paths.items() if rank.isdigit()}

    def sizes(self) -> dict[str, int]:
        """See `Logs.sizes`."""
        paths = [*self._paths("stdout.log").values(), *self._paths("stderr.log").values()]
        return {str(path): _size_bytes(path) for path in paths}

    def files(self) -> dict[str, bytes]:
        """See `Logs.files`."""
        paths = (*self._directory.glob("logs/**/*.*"), self._directory / LAUNCHER_LOG)
        return {str(path.relative_to(self._directory)): path.read_bytes() for path in paths if path.is_file()}

    def stdout(self, rank: int) -> str:
        """All that `rank` has printed."""
        path = self._paths("stdout.log").get(rank)
        return _tail(path, size_bytes=None) if path else ""

    def _tails(self, stream: str) -> dict[int, str]:
        return {rank: _tail(path) for rank, path in self._paths(f"{stream}.log").items()}

    def _launcher_tail(self) -> str:
        return _tail(self._directory / LAUNCHER_LOG)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _tail(path: Path, size_bytes: int | None = TAIL_BYTES) -> str:
    """The end of a file, its first line possibly cut; all of it when `size_bytes` is None."""
    try:
        with path.open("rb") as file:
            if size_bytes is not None:
                file.seek(max(0, _size_bytes(path) - size_bytes))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
