"""Commands that real hosts are made with.

In: a command. Out: what it prints; an exception that quotes what it says when it fails.
"""

import shlex
import subprocess
import time
from collections.abc import Callable


def start(command: list[str], output: object, env: dict[str, str]) -> "subprocess.Popen[bytes]":
    """Starts a process that dies with this one, whatever ends it."""
    return subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *command],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=env,
        start_new_session=True,
    )


def ip(*arguments: str) -> str:
    return check(subprocess.run(["ip", *arguments], capture_output=True, text=True, timeout=20)).stdout


def check(answer: "subprocess.CompletedProcess[str]") -> "subprocess.CompletedProcess[str]":
    if answer.returncode != 0:
        raise RuntimeError(f"{shlex.join(answer.args)[:300]}: {answer.stderr.strip() or answer.stdout.strip()}")
    return answer


def wait_until(is_so: Callable[[], bool], what: str, timeout_s: float = 15) -> None:
    end = time.monotonic() + timeout_s
    while not is_so():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {timeout_s} s: {what}")
        time.sleep(0.02)
