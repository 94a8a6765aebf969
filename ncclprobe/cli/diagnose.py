"""`ncclprobe diagnose`: collect and analyse in one go.

In: where the job runs. Out: the verdict.
"""

from pathlib import Path
from typing import Annotated

import typer

from ncclprobe.cli import options, output


def diagnose(
    hosts: options.Hosts = None,
    local: options.Local = False,
    bundle: Annotated[
        Path | None, typer.Option("--output", "-o", help="Keep the evidence here (a directory, or .tar.gz).")
    ] = None,
    job: options.Job = None,
    pid: options.Pid = None,
    user: options.User = None,
    live_dump: options.LiveDump = False,
    deadline: options.Deadline = options.DEADLINE_S,
    interval: options.Interval = options.INTERVAL_S,
    no_stacks: options.NoStacks = False,
    blocking_stacks: options.BlockingStacks = False,
    native_stacks: options.NativeStacks = False,
    no_user_code: options.NoUserCode = False,
    accept_new_host_keys: options.AcceptKeys = False,
    format: options.Format = "console",  # noqa: A002 - the name users type
    out: options.Out = None,
    no_color: options.NoColor = False,
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Name the rank that hung the job, where in its code, and why.

    Asks this machine, or every host of --hosts, for evidence of the one job that runs there.
    """
    renderer = output.renderer_for(format)
    target = options.target_of(hosts, local, accept_new_host_keys)
    request = options.request_of(
        target=target,
        job=job,
        pid=pid,
        user=user,
        deadline=deadline,
        interval=interval,
        live_dump=live_dump,
        no_stacks=no_stacks,
        blocking_stacks=blocking_stacks,
        native_stacks=native_stacks,
        no_user_code=no_user_code,
    )
    from ncclprobe import workflow

    with output.progress(len(target.hosts), quiet, verbose) as progress:
        report = workflow.diagnose(target, request, bundle, progress.on_answer)
    raise typer.Exit(output.show(report, renderer, out, no_color))
