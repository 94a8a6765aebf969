"""`ncclprobe collect`: evidence into a bundle, to be analysed later or elsewhere.

In: where the job runs, where the bundle goes. Out: the bundle.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from ncclprobe.cli import options, output


def collect(
    bundle: Annotated[Path, typer.Option("--output", "-o", help="The bundle: a new directory, or a name in .tar.gz.")],
    hosts: options.Hosts = None,
    local: options.Local = False,
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
    quiet: options.Quiet = False,
    verbose: options.Verbose = 0,
) -> None:
    """Collect evidence from every rank into a bundle. `ncclprobe analyze` reads it anywhere."""
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
        workflow.collect(target, request, bundle, progress.on_answer)
    if not quiet:
        print(f"evidence is in {bundle}; next: ncclprobe analyze {bundle}", file=sys.stderr)
