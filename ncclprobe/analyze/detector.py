"""What a detector is, and where they are found.

In: the modules of `analyze/detectors`. Out: their `DETECTOR`s, in order of name.
"""

import importlib
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ncclprobe.analyze.case import Case
from ncclprobe.model.report import Cause, Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """Looks for one cause, or a family that one look tells apart (`causes`)."""

    causes: tuple[Cause, ...]
    detect: Callable[[Case], Iterator[Finding]]


def find_detectors() -> list[Detector]:
    """Every module of the folder defines one; adding a cause is adding a file."""
    from ncclprobe.analyze import detectors

    names = sorted(module.name for module in pkgutil.iter_modules(detectors.__path__))
    return [importlib.import_module(f"{detectors.__name__}.{name}").DETECTOR for name in names]
