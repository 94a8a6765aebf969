"""Whether hosts have what a job over them needs, and how they reach one another.

In: hosts, the Python that is to run the ranks. Out: the `Facts` of each host, or an error that names one that lacks
something. What a host says is not believed before it is parsed.
"""

import ipaddress
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ncclprobe.model.errors import NcclprobeError, UsageError
from ncclprobe.repro import host_look
from ncclprobe.repro.places import Place, Script, at_each, lines, shown
from ncclprobe.repro.reproducer import Need, Repro

_OLDEST = (3, 10)
_TIMEOUT_S = 60.0  # a busy file system takes its time to say whether there is a torch
_NO_COMMAND = (126, 127)  # what a shell says of a command that cannot be run
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}", re.ASCII)
_INTERFACE = re.compile(r"[^\s/\0]{1,255}")
_OTHER_PYTHON = "name one that every host has with --python"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """`address`: by which we have reached it, None if unknown; `port`: a free one; `interface`: "" if unknown."""

    version: tuple[int, ...]
    has_torch: bool
    has_gpu: bool
    address: str | None
    name: str
    interface: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether the address leads other hosts to themselves."""
        return self.address is not None and ipaddress.ip_address(self.address).is_loopback


def look_at(places: Sequence[Place], python: str, repro: Repro) -> list[Facts]:
    """What each host has. UsageError for what `repro` needs and one lacks, NcclprobeError for one without an answer."""
    script = Script(python=python, flags="-B", source=Path(host_look.__file__).read_bytes())
    return at_each(places, partial(_look, script=script, needs_gpu=Need.GPU in repro.requires), lambda _: None)


def master_address(facts: Sequence[Facts]) -> str:
    """How all hosts reach the first one."""
    first = facts[0]
    if first.address is None or (first.is_loopback and len(facts) > 1):
        return first.name
    return first.address


def _look(place: Place, *, script: Script, needs_gpu: bool) -> Facts:
    process = place.start(script.command, script.payload, time.monotonic() + _TIMEOUT_S)
    try:
        said = list(lines(process))
        facts = _parsed(said[-1]) if said else None
        if facts is None:
            raise _no_answer(script.python, *process.finish())
    finally:
        process.close()
    _refuse(facts, script.python, needs_gpu=needs_gpu)
    return facts


def _no_answer(python: str, status: int | None, words: str) -> NcclprobeError:
    if status in _NO_COMMAND:
        return UsageError(f"it has no Python {python}", _OTHER_PYTHON)
    reason = shown(words.strip().rpartition("\n")[2]) or f"exit status {status}"
    return UsageError(f"its Python {python} does not work: {reason}", _OTHER_PYTHON)


def _refuse(facts: Facts, python: str, *, needs_gpu: bool) -> None:
    if facts.version < _OLDEST:
        version = ".".join(map(str, facts.version))
        raise UsageError(f"its Python {python} is {version}, and 3.10 or newer is needed", _OTHER_PYTHON)
    if not facts.has_torch:
        raise UsageError(f"its Python {python} has no torch", f"install torch there, or {_OTHER_PYTHON}")
    if needs_gpu and not facts.has_gpu:
        raise UsageError("it has no NVIDIA GPU, which this reproducer needs", "name hosts with GPUs")


def _parsed(line: str) -> Facts | None:
    try:
        said: dict[str, Any] = json.loads(line)
        address, name, interface = str(said["address"]), str(said["name"]), str(said["interface"])
        return Facts(
            version=tuple(int(number) for number in said["version"]),
            has_torch=said["has_torch"] is True,
            has_gpu=said["has_gpu"] is True,
            address=str(ipaddress.ip_address(address)) if address else None,
            name=name if _NAME.fullmatch(name) else "localhost",
            interface=interface if _INTERFACE.fullmatch(interface) else "",
            port=int(said["port"]),
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
