"""Finds the sources.

In: the modules of `probe/sources`, or of `probe/checks`. Out: their `SOURCE`s, in order of wave and name.
"""

import importlib
import pkgutil
from types import ModuleType

from ncclprobe.probe import sources
from ncclprobe.probe.source import Source


def find_sources(folder: ModuleType = sources) -> list[Source]:
    """Every module of the folder defines one; adding a source is adding a file."""
    names = [module.name for module in pkgutil.iter_modules(folder.__path__)]
    found = [importlib.import_module(f"{folder.__name__}.{name}").SOURCE for name in names]
    return sorted(found, key=lambda source: (source.wave, source.name))
