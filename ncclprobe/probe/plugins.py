"""Finds the sources.

In: the modules of `probe/sources`. Out: their `SOURCE`s, in order of wave and name.
"""

import importlib
import pkgutil

from ncclprobe.probe import sources
from ncclprobe.probe.source import Source


def find_sources() -> list[Source]:
    """Every module of the folder defines one; adding a source is adding a file."""
    names = [module.name for module in pkgutil.iter_modules(sources.__path__)]
    found = [importlib.import_module(f"{sources.__name__}.{name}").SOURCE for name in names]
    return sorted(found, key=lambda source: (source.wave, source.name))
