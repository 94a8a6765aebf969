"""Start the ranks of a job as plain processes, as srun does: each by itself, and the end of one ends no other.

In: one argument, a JSON `Plan`. Out: the ranks' output in a file each; the highest exit status once all have ended.
Says nothing itself. Runs as a script, so it imports the standard library only.
"""

import ctypes
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TypedDict

_PR_SET_PDEATHSIG = 1
_SIGNALLED = 128  # what a shell adds to the number of the signal that ended a process


class RankPlan(TypedDict):
    """One rank: what to run with which variables, where its output goes, which cgroups it lives in."""

    argv: list[str]
    environment: dict[str, str]
    output: str
    cgroups: list[str]


class Plan(TypedDict):
    """The ranks, in the order they are started in. Paths may be relative to the working directory."""

    ranks: list[RankPlan]


def start(rank: RankPlan) -> "subprocess.Popen[bytes]":
    """Start one rank. Should this process be killed, it is too."""

    def enter() -> None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0)
        for cgroup in rank["cgroups"]:
            Path(cgroup, "cgroup.procs").write_text("0")  # 0 is whoever writes it

    Path(rank["output"]).parent.mkdir(parents=True, exist_ok=True)
    with open(rank["output"], "wb") as output:
        return subprocess.Popen(
            rank["argv"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **rank["environment"]},
            preexec_fn=enter,  # noqa: PLW1509 - no threads here
        )


def wait(ranks: "list[subprocess.Popen[bytes]]") -> int:
    """Wait for all; each is reaped when it ends. The highest exit status, as srun's; of a signal 128 and its number."""
    left = {rank.pid: rank for rank in ranks}
    highest = 0
    while left:
        pid, status = os.waitpid(-1, 0)
        code = os.waitstatus_to_exitcode(status)
        if left.pop(pid, None) is not None:
            highest = max(highest, code if code >= 0 else _SIGNALLED - code)
    return highest


def _leave(number: int, _frame: FrameType | None) -> None:
    sys.exit(_SIGNALLED + number)


def main() -> None:
    """Start them and wait; whoever ends this process ends them."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _leave)
    plan: Plan = json.loads(sys.argv[1])
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        ranks += map(start, plan["ranks"])
        sys.exit(wait(ranks))
    finally:
        for rank in ranks:
            with suppress(OSError):
                rank.kill()


if __name__ == "__main__":
    main()
