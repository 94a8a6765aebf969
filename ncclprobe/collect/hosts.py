"""Which hosts to ask.

In: the text after `--hosts`. Out: `Host`s.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A host to ask. `name` is as the user wrote it; `user` and `port` are None where the SSH configuration decides."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
