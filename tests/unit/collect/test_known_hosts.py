"""Host keys are judged as OpenSSH judges them, or more strictly."""

import base64
import subprocess
from pathlib import Path

import pytest

from ncclprobe.collect.ssh.known_hosts import HostKey, KeyStatus, KnownHosts

ED = HostKey(kind="ssh-ed25519", blob=b"an ed25519 key")
OTHER_ED = HostKey(kind="ssh-ed25519", blob=b"another ed25519 key")
RSA = HostKey(kind="ssh-rsa", blob=b"an rsa key")


def line(names: str, key: HostKey = ED) -> str:
    return f"{names} {key.kind} {base64.b64encode(key.blob).decode()}\n"


def status(text: str, name: str, key: HostKey, tmp_path: Path) -> KeyStatus:
    path = tmp_path / "known_hosts"
    path.write_text(text)
    return KnownHosts((path,)).check(name, key).status


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        (line("node1"), "node1", KeyStatus.KNOWN),
        (line("other,node1"), "node1", KeyStatus.KNOWN),
        (line("node*"), "node1", KeyStatus.KNOWN),
        (line("node?.x"), "node1.x", KeyStatus.KNOWN),
        (line("*,!node1"), "node1", KeyStatus.UNKNOWN),
        (line("NODE1"), "node1", KeyStatus.KNOWN),
        (line("[node1]:2222"), "[node1]:2222", KeyStatus.KNOWN),
        (line("[node1]:2222"), "node1", KeyStatus.UNKNOWN),
        (line("node1"), "[node1]:2222", KeyStatus.UNKNOWN),
        (line("[abc]"), "a", KeyStatus.UNKNOWN),
        (line("node1", OTHER_ED), "node1", KeyStatus.CHANGED),
        (line("node1", RSA), "node1", KeyStatus.CHANGED),
        (line("node1", OTHER_ED) + line("node1"), "node1", KeyStatus.KNOWN),
        ("@revoked " + line("*") + line("node1"), "node1", KeyStatus.REVOKED),
        ("@revoked " + line("*", OTHER_ED) + line("node1"), "node1", KeyStatus.KNOWN),
        ("@cert-authority " + line("*"), "node1", KeyStatus.UNKNOWN),
        ("# " + line("node1"), "node1", KeyStatus.UNKNOWN),
        ("node1 ssh-ed25519 not*base64\nnode1\n\n|1|x node1 x\n|1|a|b ssh-rsa AAAA\n", "node1", KeyStatus.UNKNOWN),
        (line("node1").strip() + " a comment", "node1", KeyStatus.KNOWN),
    ],
)
def test_check(text: str, name: str, expected: KeyStatus, tmp_path: Path) -> None:
    assert status(text, name, ED, tmp_path) is expected


def test_the_deciding_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text("# x\n" + line("node1", RSA) + line("node1", OTHER_ED))
    assert KnownHosts((path,)).check("node1", ED).place == f"{path}:3"


def test_hashed_names_of_openssh_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True, timeout=20)
    kind, blob = key.with_suffix(".pub").read_text().split()[:2]
    path.write_text(f"[node1]:2222 {kind} {blob}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(path)], check=True, timeout=20, capture_output=True)
    assert "node1" not in path.read_text()
    host_key = HostKey(kind=kind, blob=base64.b64decode(blob))
    assert KnownHosts((path,)).check("[node1]:2222", host_key).status is KeyStatus.KNOWN
    printed = subprocess.run(["ssh-keygen", "-lf", str(key)], check=True, timeout=20, capture_output=True, text=True)
    assert host_key.fingerprint in printed.stdout


@pytest.mark.parametrize("is_hashed", [False, True])
def test_an_added_key_is_known_now_and_next_time(tmp_path: Path, is_hashed: bool) -> None:
    path = tmp_path / "ssh" / "known_hosts"
    known = KnownHosts((path,))
    known.add("node1", ED, is_hashed=is_hashed)
    known.add("node2", RSA, is_hashed=is_hashed)
    for hosts in (known, KnownHosts((path,))):
        assert hosts.check("node1", ED).status is KeyStatus.KNOWN
        assert hosts.check("node1", OTHER_ED).status is KeyStatus.CHANGED
        assert hosts.kinds("node2") == ("ssh-rsa",)
    assert ("node1" in path.read_text()) is not is_hashed
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_line_that_was_left_open_stays_whole(tmp_path: Path) -> None:
    path = tmp_path / "known_hosts"
    path.write_text(line("node1").strip())
    KnownHosts((path,)).add("node2", RSA, is_hashed=False)
    assert path.read_text() == line("node1") + line("node2", RSA)


def test_where_nothing_can_be_written_the_key_holds_for_this_run(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.touch()
    known = KnownHosts((blocker / "known_hosts",))
    known.add("node1", ED, is_hashed=False)
    assert known.check("node1", ED).status is KeyStatus.KNOWN
