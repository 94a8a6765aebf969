"""The user's SSH configuration is read as ssh reads it."""

from pathlib import Path

import pytest

from ncclprobe.collect.hosts import Host
from ncclprobe.collect.ssh.settings import SshConfig, SshSettings
from ncclprobe.collect.ssh.stream import jump_command
from ncclprobe.collect.transport import HostError
from ncclprobe.model.errors import UsageError


def settings(tmp_path: Path, text: str, host: Host | None = None, **options: Path) -> SshSettings:
    path = tmp_path / "config"
    path.write_text(text)
    return SshConfig(path, **options).settings(host or Host(name="node1", address="node1"))


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".ssh").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LOGNAME", "me")


def test_without_configuration(tmp_path: Path) -> None:
    found = settings(tmp_path, "")
    assert (found.hostname, found.port, found.user, found.key_name) == ("node1", 22, "me", "node1")
    assert found.identities[0] == tmp_path / ".ssh/id_ed25519"
    assert found.are_default_identities
    assert not found.is_agent_limited
    assert found.known_hosts == (tmp_path / ".ssh/known_hosts", tmp_path / ".ssh/known_hosts2")
    assert found.system_known_hosts[0] == Path("/etc/ssh/ssh_known_hosts")
    assert found.proxy is None


def test_what_applies_to_the_host(tmp_path: Path) -> None:
    found = settings(
        tmp_path,
        "Host node*\n HostName 10.0.0.9\n Port 2222\n User bob\n IdentityFile ~/key\n IdentitiesOnly yes\n"
        ' UserKnownHostsFile ~/a "~/b"\n GlobalKnownHostsFile none\n HashKnownHosts yes\nHost *\n User eve\n',
    )
    assert (found.hostname, found.port, found.user, found.key_name) == ("10.0.0.9", 2222, "bob", "[10.0.0.9]:2222")
    assert found.identities == (tmp_path / "key",)
    assert not found.are_default_identities
    assert found.is_agent_limited
    assert found.known_hosts == (tmp_path / "a", tmp_path / "b")
    assert found.system_known_hosts == ()
    assert found.hash_known_hosts


def test_what_the_user_gave_with_the_host_comes_first(tmp_path: Path) -> None:
    host = Host(name="root@node1:99", address="node1", user="root", port=99)
    found = settings(tmp_path, "User bob\nPort 2222\nProxyCommand nc %h %p %r\n", host)
    assert (found.user, found.port, found.proxy) == ("root", 99, "nc node1 99 root")


def test_an_alias_names_the_key(tmp_path: Path) -> None:
    assert settings(tmp_path, "HostKeyAlias Cluster\nPort 2222\n").key_name == "cluster"


def test_an_identity_that_was_named_is_the_only_one(tmp_path: Path) -> None:
    found = settings(tmp_path, "IdentityFile ~/other\n", identity=tmp_path / "mine")
    assert found.identities == (tmp_path / "mine",)
    assert found.is_agent_limited


def test_included_files_end_with_themselves(tmp_path: Path) -> None:
    (tmp_path / ".ssh/parts").mkdir()
    (tmp_path / ".ssh/parts/1").write_text("Host node1\n Port 2201\n")
    (tmp_path / ".ssh/parts/2").write_text("Host other\n")
    found = settings(tmp_path, "Include parts/* ~/missing\nUser bob\n")
    assert (found.port, found.user) == (2201, "bob")


def test_a_file_that_includes_itself_ends(tmp_path: Path) -> None:
    assert settings(tmp_path, f"Include {tmp_path}/config\nPort 99\n").port == 99


@pytest.mark.parametrize(
    ("text", "proxy", "jump"),
    [
        ("ProxyJump a\nProxyCommand b\n", None, "a"),
        ("ProxyCommand b\nProxyJump a\n", "b", None),
        ("ProxyCommand none\nProxyJump a\n", None, None),
        ("ProxyJump none\n", None, None),
    ],
)
def test_the_first_proxy_holds(tmp_path: Path, text: str, proxy: str | None, jump: str | None) -> None:
    found = settings(tmp_path, text)
    assert (found.proxy, found.proxy_jump) == (proxy, jump)


def test_a_jump_is_left_to_ssh_without_questions(tmp_path: Path) -> None:
    found = settings(tmp_path, "ProxyJump first,bob@second:2222\n")
    command = jump_command(found, "first,bob@second:2222", tmp_path / "config", 10, accept_new=False)
    assert command[:5] == ["ssh", "-F", str(tmp_path / "config"), "-J", "first"]
    assert "BatchMode=yes" in command
    assert "StrictHostKeyChecking=yes" in command
    assert command[-4:] == ["-W", "[node1]:22", "--", "ssh://bob@second:2222"]


@pytest.mark.parametrize(
    "text",
    ["HostName -oProxyCommand=x\n", "HostName a;b\n", "User $(id)\n", "HostKeyAlias a b\n", "Port x\n"],
)
def test_senseless_settings_are_the_hosts_own_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(HostError):
        settings(tmp_path, text)


def test_a_configuration_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist"):
        SshConfig(tmp_path / "missing")
    with pytest.raises(UsageError, match="cannot be read"):
        SshConfig(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        settings(tmp_path, "Host\n")
    SshConfig()  # no file at home is no error
