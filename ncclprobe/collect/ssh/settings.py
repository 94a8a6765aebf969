"""What the user's SSH configuration says about a host.

In: the text of `~/.ssh/config` and `/etc/ssh/ssh_config` (or of one other file), and a host. Out: `SshSettings`.
`StrictHostKeyChecking` is read by nobody: what is not known is refused, whatever the configuration would let pass.
"""

import getpass
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import paramiko

from ncclprobe.collect.hosts import SSH_PORT, Host
from ncclprobe.collect.transport import HostError
from ncclprobe.model.errors import UsageError

SYSTEM_FOLDER = Path("/etc/ssh")
SYSTEM_KNOWN_HOSTS = "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2"
USER_KNOWN_HOSTS = "~/.ssh/known_hosts ~/.ssh/known_hosts2"
DEFAULT_IDENTITIES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
MAX_INCLUDE_DEPTH = 16
MAX_CONFIG_BYTES = 1024 * 1024
CONFIG_ADVICE = "correct the SSH configuration: `ssh -G HOST` shows how ssh reads it"

_DIRECTIVE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_SAFE_WORD = re.compile(r"[A-Za-z0-9_.:%+@\[\]-]+", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SshSettings:
    """Where and how to connect.

    `key_name` is what the host key is filed under (`name`, or `[name]:port`). `identities` are tried before the agent's
    keys; they are the default ones where `are_default_identities`. `proxy` is a shell command line that carries the
    bytes, `proxy_jump` the hosts to jump over; at most one of the two is set.
    """

    hostname: str
    port: int
    user: str
    key_name: str
    identities: tuple[Path, ...]
    are_default_identities: bool
    is_agent_limited: bool
    known_hosts: tuple[Path, ...]
    system_known_hosts: tuple[Path, ...]
    hash_known_hosts: bool
    proxy: str | None = None
    proxy_jump: str | None = None


class SshConfig:
    """The user's SSH configuration, read once; answers for any number of hosts and threads."""

    def __init__(self, path: Path | None = None, identity: Path | None = None) -> None:
        """Reads `path` alone, or else the user's and the system's files. UsageError when one cannot be read."""
        self.path = path
        self._identity = identity.expanduser() if identity is not None else None
        home = Path("~/.ssh").expanduser()
        if path is not None:
            self._text = _read(path, home)
        else:
            self._text = "\nHost *\n".join(
                _read(folder / name, folder, is_optional=True)
                for folder, name in ((home, "config"), (SYSTEM_FOLDER, "ssh_config"))
            )
        self._parsed: dict[str, paramiko.SSHConfig] = {}
        try:
            self._parse("")
        except (paramiko.SSHException, ValueError) as error:
            raise UsageError(f"the SSH configuration cannot be read: {error}", CONFIG_ADVICE) from None

    def settings(self, host: Host) -> SshSettings:
        """What applies to `host`. HostError when the configuration, or the host's name, makes no sense."""
        options = self._lookup(host)
        try:
            port = int(options.get("port", SSH_PORT))
        except ValueError:
            raise HostError(f"the SSH configuration has no valid Port: {options['port']!r}", CONFIG_ADVICE) from None
        hostname = options.get("hostname", host.address)
        identities = self._identities(options)
        proxy = _first_proxy(options)
        settings = SshSettings(
            hostname=hostname,
            port=port,
            user=options["user"],
            key_name=_key_name(options.get("hostkeyalias"), hostname, port),
            identities=identities or tuple(Path(name).expanduser() for name in DEFAULT_IDENTITIES),
            are_default_identities=not identities,
            is_agent_limited=self._identity is not None or options.get("identitiesonly", "no").lower() == "yes",
            known_hosts=_paths(options.get("userknownhostsfile", USER_KNOWN_HOSTS)),
            system_known_hosts=_paths(options.get("globalknownhostsfile", SYSTEM_KNOWN_HOSTS)),
            hash_known_hosts=options.get("hashknownhosts", "no").lower() == "yes",
            proxy=options["proxycommand"] if proxy == "proxycommand" else None,
            proxy_jump=options["proxyjump"] if proxy == "proxyjump" else None,
        )
        _refuse_unsafe(settings)
        return settings

    def _lookup(self, host: Host) -> dict[str, str]:
        """Options for the host. What the user gave with the host comes first, so that %p and %r expand to it."""
        given = "" if host.user is None else f"User {host.user}\n"
        given += "" if host.port is None else f"Port {host.port}\n"
        try:
            options: dict[str, str] = self._parse(given).lookup(host.address)
            options.setdefault("user", getpass.getuser())
        except (paramiko.SSHException, ImportError, KeyError, OSError, ValueError) as error:
            raise HostError(f"the SSH configuration cannot be used for it: {error}", CONFIG_ADVICE) from None
        return options

    def _parse(self, given: str) -> paramiko.SSHConfig:
        if given not in self._parsed:
            self._parsed[given] = paramiko.SSHConfig.from_text(f"{given}Host *\n{self._text}")
        return self._parsed[given]

    def _identities(self, options: dict[str, str]) -> tuple[Path, ...]:
        if self._identity is not None:
            return (self._identity,)
        names = [name for name in options.get("identityfile", ()) if name.lower() != "none"]
        return tuple(Path(name).expanduser() for name in names)


def _read(path: Path, folder: Path, depth: int = 0, *, is_optional: bool = False) -> str:
    """A configuration file with what it includes, relative to `folder`; paramiko knows no `Include`."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            text = file.read(MAX_CONFIG_BYTES)
    except FileNotFoundError:
        if is_optional:
            return ""
        raise UsageError(f"SSH configuration {path} does not exist", "check the path") from None
    except OSError as error:
        raise UsageError(f"SSH configuration {path} cannot be read: {error.strerror}", CONFIG_ADVICE) from None
    block = "Host *"
    lines: list[str] = []
    for line in text.splitlines():
        keyword, value = _directive(line)
        if keyword == "include" and depth < MAX_INCLUDE_DEPTH:
            lines += [_read(file, folder, depth + 1, is_optional=True) for file in _included(value, folder)]
            lines.append(block)  # the blocks of an included file end with the file
            continue
        block = line if keyword in ("host", "match") else block
        lines.append(line)
    return "\n".join(lines)


def _directive(line: str) -> tuple[str, str]:
    match = _DIRECTIVE.match(line)
    return (match[1].lower(), match[2]) if match else ("", "")


def _included(patterns: str, folder: Path) -> list[Path]:
    try:
        words = shlex.split(patterns)
    except ValueError:
        return []
    files: list[Path] = []
    for word in words:
        path = folder / Path(word).expanduser()  # an absolute path stays as it is
        root = Path(path.anchor)
        files += sorted(file for file in root.glob(str(path.relative_to(root))) if file.is_file())
    return files


def _first_proxy(options: dict[str, str]) -> str | None:
    """Which of ProxyCommand and ProxyJump holds: the one the configuration has first, unless it is `none`."""
    for name in options:
        if name in ("proxycommand", "proxyjump"):
            value = options[name]
            return None if value is None or value.lower() == "none" else name
    return None


def _key_name(alias: str | None, hostname: str, port: int) -> str:
    name = (alias or hostname).lower()
    return name if alias or port == SSH_PORT else f"[{name}]:{port}"


def _paths(value: str) -> tuple[Path, ...]:
    try:
        words = shlex.split(value)
    except ValueError:
        words = value.split()
    home = str(Path.home())
    return tuple(Path(word.replace("%d", home)).expanduser() for word in words if word.lower() != "none")


def _refuse_unsafe(settings: SshSettings) -> None:
    """Names reach a proxy's shell and known_hosts: no option, no space, no shell character."""
    for word in (settings.hostname, settings.user, settings.key_name):
        if word.startswith("-") or not _SAFE_WORD.fullmatch(word):
            raise HostError(f"{word[:60]!r} is not a name to connect to", "correct the name, or the SSH configuration")
