"""Options that several commands share, and how they become a target and a request.

In: what Typer parsed. Out: `Target` and `Request` of the workflow.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ncclprobe.model.errors import UsageError

if TYPE_CHECKING:
    from ncclprobe.workflow import Request, Target

Hosts = Annotated[
    str | None, typer.Option(help="Hosts to ask over SSH: a file, a set such as node[01-04], or - for standard input.")
]
Local = Annotated[bool, typer.Option("--local", help="Ask this machine (the default without --hosts).")]
Job = Annotated[
    str | None, typer.Option(help="The job, where several run: its rendezvous id, address:port or Slurm id.")
]
Pid = Annotated[int | None, typer.Option(help="Any process of the job (one host only).", min=1)]
User = Annotated[str | None, typer.Option(help="The user who runs the job.")]
Deadline = Annotated[float, typer.Option(help="Seconds for the whole collection.", min=2.0)]
Interval = Annotated[float, typer.Option(help="Seconds between the two looks.", min=0.1, max=600.0)]
LiveDump = Annotated[
    bool,
    typer.Option("--live-dump", help="Ask running ranks for their flight recorder, by running a few lines in each."),
]
NoStacks = Annotated[bool, typer.Option("--no-stacks", help="No ptrace at all: no stacks.")]
BlockingStacks = Annotated[bool, typer.Option("--blocking-stacks", help="Stop each process while its stack is read.")]
NativeStacks = Annotated[bool, typer.Option("--native-stacks", help="C frames too; stops each rank for seconds.")]
NoUserCode = Annotated[bool, typer.Option("--no-user-code", help="Leave the user's source files out of the bundle.")]
AcceptKeys = Annotated[
    bool,
    typer.Option("--accept-new-host-keys", help="Trust hosts that known_hosts does not name (never changed keys)."),
]
Format = Annotated[str, typer.Option("--format", "-f", help="console or json.")]
Out = Annotated[Path | None, typer.Option("--out", help="Write the report to a file.")]
NoColor = Annotated[bool, typer.Option("--no-color", help="No colours (NO_COLOR does the same).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on standard error.")]
Verbose = Annotated[
    int, typer.Option("--verbose", "-v", count=True, help="More on standard error; -vv adds tracebacks.")
]

DEADLINE_S = 60.0
INTERVAL_S = 1.0


def target_of(hosts: str | None, local: bool, accept_new_host_keys: bool) -> "Target":
    """The hosts to ask; UsageError for a contradiction or a bad list."""
    from ncclprobe.workflow import Target

    if hosts is None:
        return Target()
    if local:
        raise UsageError("--local and --hosts contradict each other", "give one of them")
    from ncclprobe.collect.hosts import read_hosts
    from ncclprobe.collect.transport.ssh import SshTransport

    return Target(read_hosts(hosts, sys.stdin), SshTransport(accept_new_host_keys=accept_new_host_keys))


def request_of(
    *,
    target: "Target",
    job: str | None,
    pid: int | None,
    user: str | None,
    deadline: float,
    interval: float,
    live_dump: bool,
    no_stacks: bool,
    blocking_stacks: bool,
    native_stacks: bool,
    no_user_code: bool,
) -> "Request":
    """What to ask each host for; UsageError where the options contradict each other."""
    from ncclprobe.probe.selection import Selection
    from ncclprobe.probe.source import Options
    from ncclprobe.workflow import Request

    if pid is not None and len(target.hosts) > 1:
        raise UsageError("--pid names a process on one host, and there are several", "name the job with --job")
    if no_stacks and (blocking_stacks or native_stacks):
        raise UsageError("--no-stacks contradicts the other stack options", "give one of them")
    if interval * 2 > deadline:
        raise UsageError(f"an interval of {interval:g} s does not fit a deadline of {deadline:g} s", "raise --deadline")
    return Request(
        options=Options(
            interval_s=interval,
            stacks=not no_stacks,
            blocking_stacks=blocking_stacks,
            native_stacks=native_stacks,
            live_dump=live_dump,
            user_code=not no_user_code,
        ),
        selection=Selection(job=job, pid=pid, user=user),
        deadline_s=deadline,
    )
