"""The options of every command that collects evidence.

In: a command that takes a `target` and a `request`. Out: the same command with the options that make them.
"""

import sys
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ncclprobe.cli import options
from ncclprobe.model.errors import UsageError

if TYPE_CHECKING:
    from ncclprobe.probe.selection import Selection
    from ncclprobe.workflow import Request, Target

_DEADLINE_S = 60.0
_INTERVAL_S = 1.0


def _options(
    hosts: options.Hosts = None,
    local: options.Local = False,
    job: options.Job = None,
    pid: options.Pid = None,
    user: options.User = None,
    live_dump: Annotated[
        bool,
        typer.Option("--live-dump", help="Ask running ranks for their flight recorder, by a few lines run in each."),
    ] = False,
    deadline: Annotated[float, typer.Option(help="Seconds for the whole collection.", min=2.0)] = _DEADLINE_S,
    interval: Annotated[float, typer.Option(help="Seconds between the two looks.", min=0.1, max=600.0)] = _INTERVAL_S,
    no_stacks: Annotated[bool, typer.Option("--no-stacks", help="No ptrace at all: no stacks.")] = False,
    blocking_stacks: Annotated[
        bool, typer.Option("--blocking-stacks", help="Stop each process while its stack is read.")
    ] = False,
    native_stacks: Annotated[
        bool, typer.Option("--native-stacks", help="C frames too; may stop each rank for seconds.")
    ] = False,
    no_user_code: Annotated[
        bool, typer.Option("--no-user-code", help="Leave the user's source files out of the bundle.")
    ] = False,
    ras: Annotated[
        bool | None,
        typer.Option("--ras/--no-ras", help="Ask NCCL's RAS service; unless said, only NCCL 2.28.7 and later."),
    ] = None,
    identity: options.Identity = None,
    accept_new_host_keys: options.AcceptNewHostKeys = False,
) -> "tuple[Target, Request]":
    target = make_target(hosts, local, identity, accept_new_host_keys)
    if no_stacks and (blocking_stacks or native_stacks):
        raise UsageError("--no-stacks contradicts the other stack options", "give one of them")
    if interval * 2 > deadline:
        raise UsageError(f"an interval of {interval:g} s does not fit a deadline of {deadline:g} s", "raise --deadline")
    from ncclprobe.probe.source import Options
    from ncclprobe.workflow import Request

    allowed = Options(
        interval_s=interval,
        stacks=not no_stacks,
        blocking_stacks=blocking_stacks,
        native_stacks=native_stacks,
        live_dump=live_dump,
        user_code=not no_user_code,
        ras=ras,
    )
    selection = make_selection(target, job, pid, user)
    return target, Request(options=allowed, selection=selection, deadline_s=deadline)


def make_selection(target: "Target", job: str | None, pid: int | None, user: str | None) -> "Selection":
    """Which job is meant; UsageError for a pid on several hosts."""
    if pid is not None and len(target.hosts) > 1:
        raise UsageError("--pid names a process on one host, and there are several", "name the job with --job")
    from ncclprobe.probe.selection import Selection

    return Selection(job=job, pid=pid, user=user)


def make_target(hosts: str | None, local: bool, identity: Path | None, accept_new_host_keys: bool) -> "Target":
    """The hosts and the way to them; UsageError when the options do not fit together."""
    from ncclprobe.workflow import Target

    if hosts is None:
        return Target()
    if identity is not None and not identity.is_file():
        raise UsageError(f"there is no key {identity}", "check the path, or leave --identity out")
    if local:
        raise UsageError("--local and --hosts contradict each other", "give one of them")
    from ncclprobe.collect.hosts import read_hosts
    from ncclprobe.collect.transport.ssh import SshTransport

    return Target(
        read_hosts(hosts, sys.stdin), SshTransport(accept_new_host_keys=accept_new_host_keys, identity=identity)
    )


def collects(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options to a command's own; it is called with the `target` and `request` they stand for."""
    shared = signature(_options).parameters
    own = [p for p in signature(command).parameters.values() if p.name not in ("target", "request")]

    @wraps(command)
    def run(**given: Any) -> None:
        target, request = _options(**{name: given.pop(name) for name in shared})
        command(target=target, request=request, **given)

    # Typer reads a command's options from its signature and annotations.
    parameters = [p.replace(kind=Parameter.KEYWORD_ONLY) for p in (*shared.values(), *own)]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run
