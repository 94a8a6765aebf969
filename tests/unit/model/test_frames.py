"""The user's own code, told from installed packages and the interpreter."""

import pytest

from ncclprobe.model.frames import Frame, innermost_user_frame


@pytest.mark.parametrize(
    "file",
    [
        "/opt/venv/lib/python3.11/site-packages/torch/_tensor.py",
        "/usr/lib/python3/dist-packages/numpy/core.py",
        "/usr/lib/python3.10/threading.py",
        "<frozen importlib._bootstrap>",
        "<string>",
        "threading.py",
    ],
)
def test_libraries_are_not_the_users(file: str) -> None:
    assert not Frame("f", file, 1).is_user_code


@pytest.mark.parametrize(
    "file", ["/home/user/train.py", "train.py", "/srv/lib/model.py", "/data/python3.11-tests/run.py"]
)
def test_everything_else_is(file: str) -> None:
    assert Frame("f", file, 1).is_user_code


def test_the_innermost_user_frame_is_the_first_of_theirs() -> None:
    inner, outer = Frame("helper", "/home/u/a.py", 3), Frame("main", "/home/u/b.py", 9)
    assert innermost_user_frame((Frame("wait", "/x/site-packages/torch/a.py", 1), inner, outer)) == inner
    assert innermost_user_frame((Frame("wait", "<string>", 1),)) is None


def test_qualified_names_are_cut_to_their_last_part() -> None:
    assert Frame("Loader.<locals>.wrapper", "a.py").short_function == "wrapper"
