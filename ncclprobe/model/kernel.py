"""What the kernel log says of the job's processes.

In: nothing. Out: `OomKill`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class OomKill:
    """The kernel killed a process for memory. `line` counts from 1 in the log; `when` is its own time text."""

    pid: int
    command: str
    cgroup: str | None
    anon_rss_kb: int | None
    line: int
    when: str
    quote: str
