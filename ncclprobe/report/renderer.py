"""What a renderer is, and where they are found.

In: the modules of this folder. Out: the `RENDERER`s of those that define one, by format name.
"""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

from ncclprobe import report as package
from ncclprobe.model.report import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class Renderer:
    """One format. `write(report, stream, width, has_color)` prints the report; `width` None follows the terminal."""

    name: str
    write: Callable[[Report, TextIO, "int | None", bool], None]


def find_renderers() -> dict[str, Renderer]:
    """Adding a format is adding a file that defines `RENDERER`."""
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    modules = (importlib.import_module(f"{package.__name__}.{name}") for name in names)
    return {module.RENDERER.name: module.RENDERER for module in modules if hasattr(module, "RENDERER")}
