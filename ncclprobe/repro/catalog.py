"""Which reproducers there are.

In: a name. Out: its `Repro`, or an error that lists the near ones. A module of this package that defines `REPRO` is a
reproducer; there is no other list of them.
"""

import pkgutil
from difflib import get_close_matches
from importlib import import_module

from ncclprobe import repro as package
from ncclprobe.model.errors import UsageError
from ncclprobe.repro.reproducer import Repro


def all_repros() -> tuple[Repro, ...]:
    """Every reproducer, by name."""
    names = (info.name for info in pkgutil.iter_modules(package.__path__, prefix=f"{package.__name__}."))
    constants = (getattr(import_module(name), "REPRO", None) for name in names)
    return tuple(sorted((repro for repro in constants if isinstance(repro, Repro)), key=lambda repro: repro.name))


def find(name: str) -> Repro:
    """The reproducer called `name`. Raises UsageError that lists the names most like it."""
    repros = {repro.name: repro for repro in all_repros()}
    if name in repros:
        return repros[name]
    near = get_close_matches(name.replace("_", "-"), repros, n=3, cutoff=0.5) or sorted(repros)
    raise UsageError(f"there is no reproducer named {name!r}", f"try one of: {', '.join(near)}")
