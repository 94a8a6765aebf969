"""What NCCL's RAS service says of all ranks of the job.

In: the ranks of this host, any of which answers for all. Out: two reports some seconds apart, as JSON or text.

Asking makes NCCL walk over its communicators in each rank. Versions before 2.28.7 have crashed jobs over it
(NVIDIA/nccl issues 1669, 1718, 1762), so these are asked only on request, and no version is asked in a loop.
"""

import ctypes
import os
import time
from collections.abc import Iterator, Sequence

from ncclprobe.model.evidence import Gap, Kind
from ncclprobe.model.job import JobProcess
from ncclprobe.probe import proc
from ncclprobe.probe.nccl_library import NcclLibrary, Version, loaded_nccl
from ncclprobe.probe.ras_client import Address, Answer, RasError, address_of, ask
from ncclprobe.probe.source import Context, Disturbance, Found, Source

FIRST_WITH_RAS: Version = (2, 24, 0)
FIRST_SAFE: Version = (2, 28, 7)
LOOK_S = 11.0
LEAST_INTERVAL_S = 2.0
_MAX_ATTEMPTS = 16
_CLONE_NEWNET = 0x40000000  # linux/sched.h


def collect(context: Context) -> Iterator[Found | Gap]:
    """Two looks; a gap where the service may not or cannot be asked."""
    libraries = [library for process in context.ranks if (library := loaded_nccl(process.pid)) is not None]
    environs = [environ for process in context.ranks if (environ := proc.environ(process.pid)) is not None]
    refusal = _refusal(context, libraries, environs)
    if refusal is not None:
        yield refusal
    elif libraries or (context.options.ras and context.ranks):
        yield from _look_twice(context, list(dict.fromkeys(map(address_of, environs))) or [Address()])


def _refusal(context: Context, libraries: Sequence[NcclLibrary], environs: Sequence[dict[str, str]]) -> Gap | None:
    """Why not to ask. A job without NCCL is no gap, nor is a version that has no such service."""
    if not libraries and not context.options.ras:
        return None
    if environs and all(environ.get("NCCL_RAS_ENABLE") == "0" for environ in environs):
        return _gap(context, "NCCL_RAS_ENABLE is 0 in the ranks", "leave it out the next time")
    if context.options.ras:
        return None
    versions = [library.version for library in libraries]
    if None in versions:
        why = f"the version of {libraries[versions.index(None)].path} is not known, and some can crash when asked"
        return _gap(context, why, "allow it with --ras, if it is 2.28.7 or later")
    oldest = min(version for version in versions if version is not None)
    if oldest < FIRST_SAFE:
        name = ".".join(map(str, oldest))
        if oldest < FIRST_WITH_RAS:
            return _gap(context, f"NCCL {name} has no RAS service", "none; 2.24 and later have one")
        return _gap(
            context, f"NCCL {name} can crash when asked", "allow it with --ras; 2.28.7 and later are asked anyway"
        )
    return None


def _look_twice(context: Context, addresses: Sequence[Address]) -> Iterator[Found | Gap]:
    reason = _enter_network(context.ranks[0])
    if reason is not None:
        yield _gap(context, reason, "run as root on the host, or inside the container of the ranks")
        return
    attempts = min(_MAX_ATTEMPTS, 2 * len(context.ranks) + 2)
    for look in (1, 2):
        if look == 2:
            time.sleep(max(LEAST_INTERVAL_S, context.options.interval_s))
        start_ns = time.time_ns()
        try:
            address, answer = _ask_any(addresses, attempts)
        except RasError as error:
            yield _gap(context, str(error), error.advice, look)
            return
        yield _found(look, address, answer, start_ns)


def _ask_any(addresses: Sequence[Address], attempts: int) -> tuple[Address, Answer]:
    """The first that answers; RasError of the first when none does."""
    deadline, failures = time.monotonic() + LOOK_S, []
    for address in addresses:
        try:
            return address, ask(address, deadline=deadline, attempts=attempts)
        except RasError as error:
            failures.append(error)
    raise failures[0]


def _enter_network(rank: JobProcess) -> str | None:
    """Ranks in a container may have a network of their own; this process is ours alone. Why not, if not."""
    theirs = proc.link(rank.pid, "ns/net")
    if theirs is None or theirs == proc.link(os.getpid(), "ns/net"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    try:
        descriptor = os.open(f"/proc/{rank.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        return f"the ranks have a network of their own, and it cannot be entered: {error.strerror}"
    entered = libc.setns(descriptor, _CLONE_NEWNET) == 0
    os.close(descriptor)
    number = ctypes.get_errno()
    return (
        None if entered else f"the ranks have a network of their own, and it cannot be entered: {os.strerror(number)}"
    )


def _found(look: int, address: Address, answer: Answer, start_ns: int) -> Found:
    silent = f", after {answer.silent} that did not answer" if answer.silent else ""
    return Found(
        file=f"ras.look{look}.{'json' if answer.is_json else 'txt'}",
        kind=Kind.RAS,
        origin=f"NCCL RAS at {address} ({answer.peer}{silent})",
        data=answer.data,
        look=look,
        start_ns=start_ns,
        end_ns=time.time_ns(),
        truncated=not answer.is_whole,
    )


def _gap(context: Context, why: str, action: str, look: int = 1) -> Gap:
    what = "no report of NCCL's RAS service" if look == 1 else "no second report of NCCL's RAS service"
    return Gap(who=context.host, what=what, why=why, action=action)


SOURCE = Source(
    name="ras",
    disturbs=Disturbance.NOTHING,
    collect=collect,
    timeout_s=25.0,
    looks=2,
    is_wanted=lambda options: options.ras is not False,
)
