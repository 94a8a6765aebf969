"""Published bugs of NCCL that hang a job, and what they look like.

In: nothing. Out: `KNOWN_BUGS`. An entry needs versions, a source, and functions that the stacks must hold all of: a
version alone says nothing.
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBug:
    """Versions before `fixed_in`; `functions` (bare names) all on the stacks of one process.

    `machine` as `uname -m` says it, empty for any. `source`: where it was published.
    """

    what: str
    fixed_in: str
    functions: tuple[str, ...]
    workaround: str
    source: str
    machine: str = ""

    def affects(self, version: str) -> bool:
        """Whether `version` (2.28.9) is one of those."""
        return _parts(version) < _parts(self.fixed_in)

    def is_shown_by(self, functions: set[str]) -> bool:
        """Whether the frames of a process hold every one of the functions; C++ names may carry their arguments."""
        bare = {function.partition("(")[0].rpartition("::")[2] for function in functions}
        return all(function in bare for function in self.functions)


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version)[:3])


KNOWN_BUGS = (
    KnownBug(
        what="freed slots of the proxy's op pool are lost, and the launching thread spins for one",
        fixed_in="2.29.3",
        machine="aarch64",
        functions=("ncclLocalOpAppend", "ncclProxyGetPostedOps"),
        workaround="until then fewer operations in flight (a synchronize each step) make it rarer",
        source="NCCL release notes 2.29.3; NVIDIA/nccl issue 2353",
    ),
)
