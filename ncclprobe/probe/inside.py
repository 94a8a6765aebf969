"""Opening files as a process of the job sees them, which may live in a container and belong to anybody.

In: a pid and a path in its file system. Out: an open file that the process's own user may read, or what it names else.

Absolute links inside a container would lead out of it when followed from here, so each part of the path is opened by
itself and links are followed by hand, like chroot(2). While that goes on we act as the user of the process: nothing is
read that the user could not read, and root may not read a home directory on NFS where the user may.
"""

import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import BinaryIO

from ncclprobe.probe import proc
from ncclprobe.probe.lifeline import death_signal, die_with_parent

_MAX_LINKS = 40


def open_inside(pid: int, path: str) -> BinaryIO:
    """A regular file, for reading; OSError when there is none. A relative path counts from the process's directory."""
    with ExitStack() as opened:
        parent, name = _walk(pid, path, opened)
        return _open_regular(name, parent)


def list_inside(pid: int, path: str) -> list[str]:
    """The names in a directory; OSError when there is none."""
    with ExitStack() as opened:
        parent, name = _walk(pid, path, opened)
        directory = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
        opened.callback(os.close, directory)
        return sorted(os.listdir(directory))


@contextmanager
def folder_inside(pid: int, path: str) -> Iterator[int]:
    """A descriptor that marks a directory, for as long as we act as the user of the process; OSError without one."""
    with ExitStack() as opened:
        parent, name = _walk(pid, path, opened)
        yield _open_path(name, opened, dir_fd=parent, flags=os.O_DIRECTORY)


def write_pipe_inside(pid: int, path: str, data: bytes) -> None:
    """Bytes into a named pipe, or OSError at once: ENXIO when nobody reads it, EAGAIN when it is full."""
    with ExitStack() as opened:
        parent, name = _walk(pid, path, opened)
        _check_type(name, parent, stat.S_ISFIFO, "not a pipe")
        pipe = os.open(name, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=parent)
        opened.callback(os.close, pipe)
        if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
            raise OSError(errno.EINVAL, "not a pipe")
        os.write(pipe, data)


def connect_inside(pid: int, path: str, timeout_s: float) -> socket.socket:
    """A connection to a socket in the file system; OSError when there is none, or nobody listens."""
    with ExitStack() as opened:
        parent, name = _walk(pid, path, opened)
        _check_type(name, parent, stat.S_ISSOCK, "not a socket")
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(timeout_s)
            connection.connect(f"/proc/self/fd/{parent}/{name}")  # a path of sockets has at most 107 bytes
        except OSError:
            connection.close()
            raise
        return connection


def _check_type(name: str, parent: int, is_right: Callable[[int], bool], what: str) -> None:
    if not is_right(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
        raise OSError(errno.EINVAL, what)


def _walk(pid: int, path: str, opened: ExitStack) -> tuple[int, str]:
    """Directory descriptor and last name of a path; we act as the user of the process until `opened` is closed."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "no such path")
    path = path if path.startswith("/") else f"{proc.link(pid, 'cwd') or '/'}/{path}"
    root = _open_path(f"/proc/{pid}/root", opened, follow=True)
    opened.enter_context(_acting_as_user_of(pid))
    return _resolve(root, path, opened)


def _resolve(root: int, path: str, opened: ExitStack) -> tuple[int, str]:
    """Follows links below `root` only."""
    stack, todo, links = [root], _parts(path), 0
    while todo:
        part = todo.pop()
        if part == "..":
            del stack[max(1, len(stack) - 1) :]
            continue
        found = _open_path(part, opened, dir_fd=stack[-1])
        if stat.S_ISLNK(os.fstat(found).st_mode):
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(part, dir_fd=stack[-1])
            del stack[1 if target.startswith("/") else len(stack) :]
            todo += _parts(target)
        elif todo:
            stack.append(found)
        else:
            return stack[-1], part
    return stack[-1], "."


def _parts(path: str) -> list[str]:
    """The names of a path, the last one first."""
    return [part for part in path.split("/") if part not in ("", ".")][::-1]


def _open_path(name: str, opened: ExitStack, *, dir_fd: int | None = None, follow: bool = False, flags: int = 0) -> int:
    """A descriptor that only marks the place: opening a pipe or a device for reading could block or disturb it."""
    flags |= os.O_PATH | os.O_CLOEXEC | (0 if follow else os.O_NOFOLLOW)
    found = os.open(name, flags, dir_fd=dir_fd)
    opened.callback(os.close, found)
    return found


def _open_regular(name: str, parent: int) -> BinaryIO:
    _check_type(name, parent, stat.S_ISREG, "not a regular file")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.fdopen(os.open(name, flags, dir_fd=parent), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "not a regular file")
    return file


@contextmanager
def _acting_as_user_of(pid: int) -> Iterator[None]:
    """Root takes the user, group and groups of the process; anybody else has no choice. One thread only."""
    fields = proc.status(pid)
    if os.geteuid() != 0 or not fields:
        yield
        return
    user, group = int(fields["Uid"].split()[1]), int(fields["Gid"].split()[1])
    groups, death = os.getgroups(), death_signal()
    try:
        # Root without CAP_SETUID reads as itself: then it is in a container that holds nothing of anybody else.
        with suppress(PermissionError):
            os.setgroups([int(number) for number in fields.get("Groups", "").split()])
            os.setegid(group)
            os.seteuid(user)
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        with suppress(PermissionError):
            os.setgroups(groups)
        if death:
            die_with_parent(os.getppid(), death)
