"""Ending together with the process that started us.

In: a signal. Out: the kernel sends it to us when our parent dies, however that happens.
"""

import ctypes
import os

_PR_SET_PDEATHSIG, _PR_GET_PDEATHSIG = 1, 2  # linux/prctl.h


def die_with_parent(parent: int, number: int) -> None:
    """Ask for signal `number` at the death of `parent`. A change of user forgets it: ask again then."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before we asked
        os.kill(os.getpid(), number)


def death_signal() -> int:
    """The signal that was asked for; 0 when none was."""
    number = ctypes.c_int(0)
    ctypes.CDLL(None).prctl(_PR_GET_PDEATHSIG, ctypes.byref(number))
    return number.value
