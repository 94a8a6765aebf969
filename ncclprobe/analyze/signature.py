"""What a rule of the signature table is.

In: nothing. Out: `Phase`, what a thread can be doing; `Strength`; `Rule`, a function in a file that gives one away.
"""

import re
from dataclasses import dataclass
from enum import Enum


class Phase(str, Enum):
    """Kinds of places. The first five wait for other ranks, or for the GPU that does."""

    COLLECTIVE = "in a collective"
    P2P = "in a send or recv"
    BACKWARD = "in backward"
    SYNC = "waiting for the GPU"
    INIT = "setting up communication"
    DATA = "loading data"
    CHECKPOINT = "saving or loading a checkpoint"
    PREPROCESSING = "preprocessing"
    EVALUATION = "evaluating"
    LOGGING = "logging"
    COMPILE = "compiling or importing"
    LOCK = "waiting for a lock"
    NETWORK = "waiting for an answer over the network"
    CHILD = "waiting for a child process"
    STORAGE = "waiting for storage"
    DEBUGGER = "in a debugger"
    PROMPT = "waiting for an answer at a terminal"
    SERVE = "waiting for requests"
    EXIT = "shutting down"
    PYTHON = "in other Python code"
    UNKNOWN = "at a place its stack does not tell"

    __str__ = str.__str__

    @property
    def waits_for_ranks(self) -> bool:
        """Whether a thread in this phase can be waiting for what other ranks have to do."""
        return self in _WAITING


_WAITING = frozenset({Phase.COLLECTIVE, Phase.P2P, Phase.BACKWARD, Phase.SYNC, Phase.INIT})


class Strength(Enum):
    """WAIT: the thread waits there, unless user code was called from it. LEAF: only when nothing was called from it.

    WORK: what the thread is about, whatever user code lies between. GENERIC: a way of waiting that says nothing of
    what for: any function outside it that does is better.
    """

    WAIT = "wait"
    LEAF = "leaf"
    WORK = "work"
    GENERIC = "generic"


@dataclass(frozen=True, slots=True)
class Rule:
    """`file` is searched in the path, `function` matches the last part of a Python name, or all of a native one."""

    phase: Phase
    file: re.Pattern[str]
    function: re.Pattern[str]


def rule(phase: Phase, file: str, function: str = ".*") -> Rule:
    """A function of Python, in a file whose path ends so: py-spy's text leaves the folders of packages out."""
    return Rule(phase, re.compile(rf"(?:^|/)(?:{file})$"), re.compile(rf"(?:{function})$"))


def native(phase: Phase, function: str) -> Rule:
    """A function of C, C++ or the kernel, in whatever library it was found; without parameters."""
    return Rule(phase, re.compile(""), re.compile(rf"(?:{function})$"))


STDLIB = r"(?:lib(?:64)?/python\d[\d.]*|^)/?"
"""The folder of the interpreter's own modules, which py-spy's text leaves out: a user may have a `queue.py` too."""
