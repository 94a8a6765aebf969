"""`/proc/PID/status` tells the pid inside a container beside the host's."""

import pytest

from ncclprobe.model.errors import ParseError
from ncclprobe.model.evidence import Kind
from ncclprobe.parse.process_status import is_status, parse
from ncclprobe.parse.recognize import kind_of

WHOLE = (
    "Name:\tpython3\nUmask:\t0022\nState:\tD (disk sleep)\nTgid:\t8812\nPid:\t8812\nNSpid:\t8812\t412\nThreads:\t90\n"
)
GREP = "/proc/8812/status:NSpid:\t8812\t412\n/proc/8813/status:NSpid:\t8813\t17\t413\n/proc/1/status:NSpid:\t1\n"


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        (WHOLE, [(8812, 412)]),
        (GREP, [(8812, 412), (8813, 413)]),
        ("$ grep NSpid /proc/*/status\n" + GREP, [(8812, 412), (8813, 413)]),
    ],
)
def test_pairs_of_pids(text: str, pids: list[tuple[int, int]]) -> None:
    assert kind_of(text.encode(), "status.txt") is Kind.PROCESSES
    assert [(found.pid, found.inner_pid) for found in parse(text.encode()).records] == pids


@pytest.mark.parametrize("text", ["", "NSpid:\t1\n", "Pid:\t1\n", "step 1\nstep 2\nstep 3\nNSpid:\t8812\t412\n"])
def test_what_is_no_such_file(text: str) -> None:
    assert not is_status(text.encode())


def test_without_a_second_pid_there_is_nothing_to_tell() -> None:
    with pytest.raises(ParseError):
        parse(b"NSpid:\t1\n")
