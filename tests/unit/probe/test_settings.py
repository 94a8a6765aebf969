"""Of an environment only what concerns communication is taken, and never a secret."""

from pathlib import Path

from ncclprobe.probe.settings import nvidia_driver, settings_in


def test_what_nccl_torch_and_rendezvous_read() -> None:
    environ = {
        "NCCL_DEBUG": "INFO",
        "TORCH_NCCL_BLOCKING_WAIT": "1",
        "MASTER_ADDR": "node1",
        "HOME": "/root",
        "AWS_SECRET_ACCESS_KEY": "x",
        "NCCL_TOKEN": "x",
        "NCCL_LONG": "y" * 1000,
    }
    found = dict(settings_in(environ))
    assert set(found) == {"NCCL_DEBUG", "TORCH_NCCL_BLOCKING_WAIT", "MASTER_ADDR", "NCCL_LONG"}
    assert len(found["NCCL_LONG"]) == 256


def test_the_driver(tmp_path: Path) -> None:
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.54.15  Release Build  (dvs-builder)\n"
        "GCC version:  gcc version 12.2.0\n"
    )
    assert nvidia_driver(tmp_path / "version") == "550.54.15"
    assert nvidia_driver(tmp_path / "none") is None
