"""The first thing that runs on a host: unpacks the kit, runs the probe, removes everything.

In: standard input: one JSON line with the kit's size, the kit (a zip), then nothing until the controller hangs up.
Out: the probe's tar stream on standard output, and its exit status. Stand-alone: it is sent as text, before the kit.

However it ends, the probe's directory goes and no process of it stays. The directory holds a lock while one of them
lives, so that the next run can remove what a SIGKILL of all of them has left.
"""

import fcntl
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from typing import Any

_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from ncclprobe.probe.main import main; "
    "main(sys.argv[1], int(sys.argv[2]))"
)
_PREFIX, _LOCK = "ncclprobe-", "lock"
_GRACE_S = 1.0
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
_ROOM_BYTES = 64 << 20


def main() -> None:
    """Runs the probe once, and says in one line what stands in its way."""
    for number in _SIGNALS:
        signal.signal(number, _leave)
    started = time.monotonic()
    try:
        header = json.loads(sys.stdin.buffer.readline())
        kit = _read_exactly(header["kit_bytes"])
        header["request"]["deadline_s"] -= time.monotonic() - started  # the way here may have been slow
        sys.exit(_run_in_private(header, kit))
    except Exception as error:  # noqa: BLE001 - what the person at the other end needs is one line
        sys.exit(f"ncclprobe: {type(error).__name__}: {error}")


def _leave(number: int, _: object) -> None:
    for other in _SIGNALS:
        signal.signal(other, signal.SIG_IGN)  # once is enough, and cleaning up must not be interrupted
    sys.exit(128 + number)


def _run_in_private(header: dict[str, Any], kit: bytes) -> int:
    base = _roomy_directory()
    _remove_leftovers(base)
    directory = os.path.join(base, _PREFIX + secrets.token_hex(8))
    try:
        os.mkdir(directory, 0o700)
        lock = _lock(directory)
        _unpack(kit, directory, has_tools=header["machine"] == os.uname().machine)
        with open(os.path.join(directory, "request.json"), "w") as file:
            json.dump(header["request"], file)
        return _run(directory, lock)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _unpack(kit: bytes, directory: str, *, has_tools: bool) -> None:
    """The tools are programs of the controller's architecture: on another one they stay out."""
    tools = os.path.join(directory, "tools")
    os.mkdir(tools, 0o700)
    with zipfile.ZipFile(io.BytesIO(kit)) as archive:
        names = [name for name in archive.namelist() if has_tools or not name.startswith("tools/")]
        archive.extractall(directory, names)
    for tool in os.listdir(tools):
        os.chmod(os.path.join(tools, tool), 0o700)


def _run(directory: str, lock: int) -> int:
    command = [sys.executable, "-I", "-B", "-S", "-c", _START, directory, str(os.getpid())]
    probe = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=(lock,))
    threading.Thread(target=_end_when_hung_up, args=(probe,), daemon=True).start()
    try:
        status = probe.wait()
        return status if status >= 0 else 128 - status
    finally:
        _end(probe)


def _end_when_hung_up(probe: "subprocess.Popen[bytes]") -> None:
    """The controller keeps our input open while it listens; end of input means it is gone."""
    while os.read(0, 1 << 16):
        pass
    _end(probe)


def _end(probe: "subprocess.Popen[bytes]") -> None:
    if probe.poll() is None:
        probe.terminate()  # the probe ends its sources itself
        try:
            probe.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            probe.kill()
    if probe.returncode != 0:
        _kill_session(probe.pid)


def _kill_session(session: int) -> None:
    """What a probe that was killed has left: its sources and the programs they run are all in its session."""
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
            if int(fields[3]) == session:
                os.kill(int(name), signal.SIGKILL)
        except (OSError, ValueError, IndexError):
            continue


def _lock(directory: str) -> int:
    """A lock that lasts as long as any process has the descriptor open."""
    unfinished = os.path.join(directory, "unlocked")
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.rename(unfinished, os.path.join(directory, _LOCK))  # only now does anybody else see a lock, and it is taken
    return descriptor


def _remove_leftovers(base: str) -> None:
    """Directories of our own user that were left by runs of which no process lives."""
    for entry in os.scandir(base):
        try:
            if not entry.name.startswith(_PREFIX) or entry.stat(follow_symlinks=False).st_uid != os.geteuid():
                continue
            descriptor = os.open(os.path.join(entry.path, _LOCK), os.O_RDWR | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(entry.path, ignore_errors=True)
        except OSError:
            pass
        finally:
            os.close(descriptor)


def _read_exactly(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)
    if len(data) != size:
        raise EOFError("the connection ended before the kit was complete")
    return data


def _roomy_directory() -> str:
    """A directory with room whose files may be executed (/tmp is often mounted noexec); else one that takes files."""
    places = (os.environ.get("TMPDIR"), "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~"))  # noqa: S108
    for name in places:
        if name and os.access(name, os.W_OK | os.X_OK):
            figures = os.statvfs(name)
            has_room = figures.f_bavail * figures.f_frsize >= _ROOM_BYTES
            if has_room and not figures.f_flag & os.ST_NOEXEC:
                return name
    return tempfile.gettempdir()


if __name__ == "__main__":
    main()
