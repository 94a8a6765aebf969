"""How far the ranks have come and why they failed, from the files that a launcher keeps."""

from pathlib import Path

from ncclprobe.repro.job_logs import JobLogs


def write(directory: Path, rank: int, name: str, text: str) -> None:
    path = directory / f"logs/run_x/attempt_0/{rank}/{name}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_job_without_files_has_said_nothing(tmp_path: Path) -> None:
    logs = JobLogs(tmp_path / "gone")
    assert (logs.sizes(), logs.steps(), logs.stdout(0), logs.failure()) == ({}, {}, "", "")


def test_each_rank_has_its_own_last_step(tmp_path: Path) -> None:
    write(tmp_path, 0, "stdout.log", "step 7 loss 0.5\nstep 8 loss 0.5\nstep 8 mean loss over all ranks 1\n")
    write(tmp_path, 1, "stdout.log", "step 9 loss 0.5\nfirst step 77\n")
    write(tmp_path, 2, "stdout.log", "starting\n")
    assert JobLogs(tmp_path).steps() == {0: 8, 1: 9}


def test_the_last_step_of_a_long_log_is_found_at_its_end(tmp_path: Path) -> None:
    write(tmp_path, 0, "stdout.log", "".join(f"step {step} loss 0.1\n" for step in range(1, 3001)))
    assert JobLogs(tmp_path).steps() == {0: 3000}
    assert JobLogs(tmp_path).stdout(0).startswith("step 1 loss")


def test_any_output_changes_the_sizes(tmp_path: Path) -> None:
    write(tmp_path, 0, "stdout.log", "step 1")
    write(tmp_path, 0, "stderr.log", "")
    before = JobLogs(tmp_path).sizes()
    write(tmp_path, 0, "stderr.log", "warning")
    assert JobLogs(tmp_path).sizes() != before


def test_the_failure_is_the_exception_of_the_first_rank_that_has_one(tmp_path: Path) -> None:
    write(tmp_path, 0, "stderr.log", "a warning\n")
    write(tmp_path, 2, "stderr.log", "[rank2]: Traceback ...\n[rank2]: torch.cuda.OutOfMemoryError: no memory\nbye\n")
    write(tmp_path, 3, "stderr.log", "RuntimeError: Connection closed by peer\n")
    assert JobLogs(tmp_path).failure() == "rank 2: torch.cuda.OutOfMemoryError: no memory"


def test_without_an_exception_the_launcher_has_the_last_word(tmp_path: Path) -> None:
    (tmp_path / "launcher.log").write_text("usage: ...\nerror: unrecognized arguments\n=====\n")
    assert JobLogs(tmp_path).failure() == "error: unrecognized arguments"


def test_plain_processes_have_one_file_each(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs/train-0.out").write_text("step 3 loss 0.5\n")
    (tmp_path / "logs/train-12.out").write_text("step 4 loss 0.5\nValueError: no\n")
    logs = JobLogs(tmp_path)
    assert logs.steps() == {0: 3, 12: 4}
    assert logs.stdout(12).startswith("step 4")
    assert logs.failure() == "rank 12: ValueError: no"
