"""A /proc of made-up processes: trees that no test machine has, each run the same.

In: processes. Out: a directory that the probe reads as it would read /proc.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

TORCH_MAPS = "7f00-7f01 r-xp 0 0:0 1 /opt/conda/lib/python3.11/site-packages/torch/lib/libtorch_cpu.so\n"


class FakeProc:
    """`root` is the directory. PID 1 is there from the start: systemd, of root."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.add(1, parent=0, arguments=["/usr/lib/systemd/systemd"], name="systemd")
        (root / "stat").write_text("cpu 0\nbtime 1700000000\n")

    def add(
        self,
        pid: int,
        *,
        parent: int = 1,
        arguments: Sequence[str] = ("python", "train.py"),
        environ: Mapping[str, str] | None = None,
        exe: str | None = None,
        name: str | None = None,
        group: int | None = None,
        uid: int = 1000,
        inner_pid: int | None = None,
        has_torch: bool = False,
        state: str = "S",
    ) -> int:
        """One process; Python where `arguments` say so. Returns its pid."""
        folder = self.root / str(pid)
        folder.mkdir()
        name = name if name is not None else os.path.basename(arguments[0])[:15] if arguments else "kthread"
        leader = group if group is not None else pid
        inner = f"{pid}\t{inner_pid}" if inner_pid is not None else str(pid)
        (folder / "status").write_text(
            f"Name:\t{name}\nState:\t{state} (x)\nPPid:\t{parent}\nTracerPid:\t0\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n"
            f"NSpid:\t{inner}\nNSpgid:\t{leader}\n"
        )
        (folder / "stat").write_text(f"{pid} ({name}) {state} {parent} {leader} {leader} " + "0 " * 46 + "\n")
        (folder / "comm").write_text(f"{name}\n")
        (folder / "cmdline").write_text("".join(f"{word}\0" for word in arguments))
        (folder / "environ").write_text("".join(f"{key}={value}\0" for key, value in (environ or {}).items()))
        (folder / "maps").write_text(TORCH_MAPS if has_torch else "")
        if arguments:
            (folder / "exe").symlink_to(exe or f"/usr/bin/{os.path.basename(arguments[0])}")
        return pid

    def hide_environ(self, pid: int) -> None:
        """As for a process of another user."""
        (self.root / str(pid) / "environ").unlink()

    def block_environ(self, pid: int) -> None:
        """As for a process whose memory lock is taken: to read it waits for ever."""
        self.hide_environ(pid)
        os.mkfifo(self.root / str(pid) / "environ")


def torchrun_environ(rank: int, local_rank: int | None = None, size: int = 8, **more: str) -> dict[str, str]:
    """What torchrun gives to a rank."""
    local = rank if local_rank is None else local_rank
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "node1",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_RUN_ID": "run1",
        "TORCHELASTIC_RESTART_COUNT": "0",
        **more,
    }
