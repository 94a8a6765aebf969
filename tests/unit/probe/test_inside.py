"""Files are opened as the process of the job sees them, and as its user: never what lies outside its root."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ncclprobe.probe.inside import connect_inside, list_inside, open_inside, write_pipe_inside
from ncclprobe.probe.lifeline import death_signal, die_with_parent
from tests.unit.probe.processes import NOBODY, SLEEPER, in_child, is_gone, running, wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def content(pid: int, path: str) -> bytes:
    with open_inside(pid, path) as file:
        return file.read()


class TestOnTheSameFileSystem:
    @pytest.fixture
    def pid(self, tmp_path: Path) -> Iterator[int]:
        (tmp_path / "train.py").write_text("x = 1\n")
        with running(cwd=tmp_path) as pid:
            yield pid

    def test_an_absolute_and_a_relative_path(self, pid: int, tmp_path: Path) -> None:
        assert content(pid, str(tmp_path / "train.py")) == b"x = 1\n"
        assert content(pid, "train.py") == content(pid, "./train.py") == b"x = 1\n"

    def test_links_and_dots(self, pid: int, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "link.py").symlink_to("../b.py")
        (tmp_path / "b.py").symlink_to(tmp_path / "train.py")
        assert content(pid, "a/link.py") == b"x = 1\n"
        assert content(pid, "a/../a/../train.py") == b"x = 1\n"

    def test_names_of_a_directory(self, pid: int, tmp_path: Path) -> None:
        (tmp_path / "dumps").mkdir()
        (tmp_path / "dumps" / "b").touch()
        (tmp_path / "dumps" / "a").touch()
        (tmp_path / "link").symlink_to("dumps")
        assert list_inside(pid, "link") == list_inside(pid, f"{tmp_path}/dumps/") == ["a", "b"]

    @pytest.mark.parametrize(
        "path", ["none.py", "train.py/x", "loop.py", "pipe.py", "folder.py", "a\0b", "/", "/dev/null"]
    )
    def test_what_is_no_file_is_an_error_and_blocks_nobody(self, pid: int, tmp_path: Path, path: str) -> None:
        (tmp_path / "loop.py").symlink_to("loop.py")
        os.mkfifo(tmp_path / "pipe.py")
        (tmp_path / "folder.py").mkdir()
        with pytest.raises(OSError, match=r".+"):
            open_inside(pid, path)

    def test_a_process_that_is_gone(self) -> None:
        with running() as pid:
            pass
        with pytest.raises(OSError, match=r".+"):
            open_inside(pid, "/etc/hostname")


@needs_root
class TestInAnotherRoot:
    """A process in a chroot, as in a container: absolute links in there must not be followed out here."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        root = tmp_path / "root"
        for name in ("work", "etc"):
            (root / name).mkdir(parents=True)
        (root / "etc" / "secret.py").write_text("inner\n")
        (tmp_path / "secret.py").write_text("outer\n")
        return root

    @pytest.fixture
    def pid(self, root: Path) -> Iterator[int]:
        with running(f"import os, time; os.chroot({str(root)!r}); os.chdir('/work'); {SLEEPER}") as pid:
            yield pid

    def test_an_absolute_link_stays_inside(self, pid: int, root: Path) -> None:
        (root / "work" / "a.py").symlink_to("/etc/secret.py")
        assert content(pid, "/work/a.py") == b"inner\n"

    @pytest.mark.parametrize("target", ["../../../../../../etc/secret.py", "/../../etc/secret.py"])
    def test_dots_do_not_climb_out(self, pid: int, root: Path, target: str) -> None:
        (root / "work" / "a.py").symlink_to(target)
        assert content(pid, "/work/a.py") == b"inner\n"
        assert content(pid, f"/work/{'../' * 20}etc/secret.py") == b"inner\n"

    def test_what_exists_only_outside_does_not_exist(self, pid: int, root: Path, tmp_path: Path) -> None:
        (root / "work" / "a.py").symlink_to(tmp_path / "secret.py")
        (root / "out").symlink_to(f"/proc/{os.getpid()}/root")
        for path in ("/work/a.py", f"{tmp_path}/secret.py", f"/out{tmp_path}/secret.py"):
            with pytest.raises(FileNotFoundError):
                open_inside(pid, path)


@needs_root
class TestAsTheUser:
    @pytest.fixture
    def pid(self) -> Iterator[int]:
        who = {"user": NOBODY, "group": NOBODY, "extra_groups": [NOBODY, 4]}
        with running("echo ready; exec sleep 600", command=("/bin/sh", "-c"), **who) as pid:
            yield pid

    @pytest.fixture
    def open_path(self, tmp_path: Path) -> Path:
        """pytest's directories are closed to others."""
        path = tmp_path
        while path != path.parent:
            if not path.stat().st_mode & stat.S_IXOTH:
                path.chmod(0o711)
            path = path.parent
        return tmp_path

    def test_a_file_of_root_is_not_read_for_a_user(self, pid: int, open_path: Path) -> None:
        secret = open_path / "secret"
        secret.write_text("root's")
        secret.chmod(0o600)
        (open_path / "train.py").symlink_to(secret)
        with pytest.raises(PermissionError):
            open_inside(pid, str(open_path / "train.py"))
        secret.chmod(0o644)
        assert content(pid, str(open_path / "train.py")) == b"root's"

    def test_the_groups_of_the_process_count(self, pid: int, open_path: Path) -> None:
        file = open_path / "shared.py"
        file.write_text("group's")
        os.chown(file, 0, 4)
        file.chmod(0o640)
        assert content(pid, str(file)) == b"group's"

    def test_afterwards_we_are_who_we_were(self, pid: int) -> None:
        before = (os.getresuid(), os.getresgid(), os.getgroups())
        list_inside(pid, "/")
        with pytest.raises(FileNotFoundError):
            open_inside(pid, "/no/such/file")
        assert (os.getresuid(), os.getresgid(), os.getgroups()) == before

    def test_we_still_die_with_our_parent(self, pid: int) -> None:
        def look() -> list[int]:
            die_with_parent(os.getppid(), 9)
            list_inside(pid, "/")
            return [death_signal()]

        assert in_child(look) == [9]


def test_a_child_dies_with_its_parent(tmp_path: Path) -> None:
    child_file = tmp_path / "child"

    def parent() -> int:
        grandparent = os.getpid()
        child = os.fork()
        if child == 0:
            die_with_parent(grandparent, 9)
            child_file.write_text("x")
            signal_pause()
        wait_until(child_file.exists, "the child is ready")
        return child

    pid = in_child(parent)
    wait_until(lambda: is_gone(pid), "the child has died with its parent")


def signal_pause() -> None:
    import signal

    signal.alarm(60)
    signal.pause()


class TestPipesAndSockets:
    @needs_root
    def test_a_socket_of_another_user_in_a_place_of_his_own(self) -> None:
        """The way there leads through /proc/self, which is closed to most who have changed their user."""
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            place = Path(folder) / ("x" * 100)
            place.mkdir(mode=0o700)
            descriptor = os.open(place, os.O_RDONLY)
            listener.bind(f"/proc/self/fd/{descriptor}/socket")  # its path is too long for bind
            os.close(descriptor)
            listener.listen()
            for path in (Path(folder), place, place / "socket"):
                os.chown(path, NOBODY, NOBODY)
            with running("echo ready; exec sleep 600", command=("/bin/sh", "-c"), user=NOBODY, cwd="/") as pid:
                with connect_inside(pid, str(place / "socket"), 1.0) as connection:
                    assert connection.getpeername()
                with pytest.raises(OSError, match="not a pipe"):
                    write_pipe_inside(pid, str(place / "socket"), b"1")
            assert os.geteuid() == 0

    def test_a_pipe_is_written_to_and_never_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with running(cwd=tmp_path) as pid:
            with pytest.raises(OSError, match="No such device"):
                write_pipe_inside(pid, "pipe", b"1")
            reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
            write_pipe_inside(pid, "pipe", b"1")
            assert os.read(reader, 10) == b"1"
            os.close(reader)
            with pytest.raises(OSError, match="not a socket"):
                connect_inside(pid, "pipe", 1.0)
