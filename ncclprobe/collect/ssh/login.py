"""Logs in with keys, never with a password.

In: a connected paramiko transport and `SshSettings`. Out: the transport is authenticated, or a `HostError` says which
keys were tried.
"""

import base64
import hashlib
import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import paramiko

from ncclprobe.collect.ssh.settings import SshSettings
from ncclprobe.collect.transport import HostError
from ncclprobe.collect.transport.deadline import call_until
from ncclprobe.collect.transport.quoting import quoted

MAX_KEYS_SHOWN = 6
AGENT_WAIT_S = 3.0
KEY_ADVICE = "add your public key to ~/.ssh/authorized_keys there, or name the key: --identity, or IdentityFile"


@dataclass(slots=True, kw_only=True)
class _Attempts:
    """What was tried, for the error text."""

    tried: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        shown = self.tried[:MAX_KEYS_SHOWN] + (["..."] if len(self.tried) > MAX_KEYS_SHOWN else [])
        text = f"tried {', '.join(shown)}" if shown else "there was no key to try"
        return f"{text}; skipped {', '.join(self.skipped)}" if self.skipped else text


def log_in(transport: paramiko.Transport, settings: SshSettings) -> None:
    """Tries the identities and the agent's keys. HostError when none is let in, or the host hangs up or hangs."""
    attempts = _Attempts()
    agent = _connect_agent(attempts)
    agent_keys = tuple(agent.get_keys()) if agent is not None else ()
    try:
        if _is_let_in_without_key(transport, settings.user):
            return
        for name, key in _keys(settings, agent_keys, attempts):
            attempts.tried.append(name)
            if _is_let_in(transport, settings.user, key):
                return
    except (paramiko.SSHException, OSError, EOFError) as error:
        raise _broken_login(error, settings.user, attempts) from None
    finally:
        if agent is not None:
            agent.close()
    raise HostError(f"the host refuses the login as {settings.user} ({attempts})", KEY_ADVICE)


def _broken_login(error: Exception, user: str, attempts: _Attempts) -> HostError:
    if _is_timeout(error):
        return HostError(
            f"the host did not answer the login as {user} in time ({attempts})",
            "its home directories or its user database may hang: look at them on its console",
        )
    return HostError(
        f"the host closed the connection during the login as {user} ({attempts})",
        "name the one right key with --identity, or IdentitiesOnly in ~/.ssh/config; see sshd's log there",
    )


def _is_timeout(error: Exception) -> bool:
    return isinstance(error, paramiko.AuthenticationException) and "timeout" in str(error).lower()


def _is_let_in_without_key(transport: paramiko.Transport, user: str) -> bool:
    """As ssh does: some servers know the caller already, the others answer with what they accept."""
    try:
        transport.auth_none(user)
    except paramiko.BadAuthenticationType as error:
        if "publickey" in error.allowed_types:
            return False
        raise HostError(
            f"the host takes no keys from {user}, only: {quoted(', '.join(error.allowed_types))}",
            "allow public keys in its sshd_config (PubkeyAuthentication yes); passwords are not used",
        ) from None
    return bool(transport.is_authenticated())


def _is_let_in(transport: paramiko.Transport, user: str, key: paramiko.PKey) -> bool:
    try:
        more_needed = transport.auth_publickey(user, key)
    except paramiko.SSHException as error:
        if _is_timeout(error) or not transport.is_active():
            raise
        return False  # refused, or the agent would not sign with this key
    if more_needed:
        raise HostError(
            f"the host takes the key, and wants {quoted(', '.join(more_needed))} as well",
            "use an account that needs a key alone: no second question can be answered",
        )
    return True


def _keys(settings: SshSettings, agent_keys: tuple[Any, ...], attempts: _Attempts) -> Iterator[tuple[str, Any]]:
    """Names and keys in the order of trying, each once: servers hang up after a few."""
    from_agent = ((f"agent {key.comment}", key) for key in agent_keys)
    if settings.is_agent_limited:
        candidates = _identity_keys(settings, agent_keys, attempts)
    elif settings.are_default_identities:
        candidates = itertools.chain(from_agent, _identity_keys(settings, agent_keys, attempts))
    else:
        candidates = itertools.chain(_identity_keys(settings, agent_keys, attempts), from_agent)
    seen: set[bytes] = set()
    for name, key in candidates:
        blob = key.asbytes()
        if blob not in seen:
            seen.add(blob)
            yield _shown(name, blob), key


def _identity_keys(
    settings: SshSettings, agent_keys: tuple[Any, ...], attempts: _Attempts
) -> Iterator[tuple[str, Any]]:
    """The keys of the identity files; one that the agent holds too is used there, where it needs no passphrase."""
    for path in settings.identities:
        public = _public_blob(path.with_name(path.name + ".pub"))
        in_agent = [key for key in agent_keys if public is not None and key.blob == public]
        key = in_agent[0] if in_agent else _load(path, attempts, is_missing_fine=settings.are_default_identities)
        if key is not None:
            yield str(path), key


def _load(path: Path, attempts: _Attempts, *, is_missing_fine: bool) -> paramiko.PKey | None:
    """The key with the certificate that may lie beside it; else None, and the reason among the skipped."""
    try:
        return paramiko.PKey.from_path(path)
    except FileNotFoundError:
        reason = "" if is_missing_fine else "no such file"
    except OSError as error:
        reason = str(error.strerror)
    except (paramiko.PasswordRequiredException, TypeError):  # cryptography's TypeError: no passphrase was given
        reason = "has a passphrase: ssh-add it first"
    except Exception:  # noqa: BLE001 - of many libraries and kinds; an odd key must not hide the good ones
        reason = "not a key that can be read"
    if reason:
        attempts.skipped.append(f"{path} ({reason})")
    return None


def _shown(name: str, blob: bytes) -> str:
    digest = base64.b64encode(hashlib.sha256(blob).digest()).decode()
    return f"{quoted(name)} (SHA256:{digest[:12]}...)"


def _public_blob(path: Path) -> bytes | None:
    try:
        return base64.b64decode(path.read_text(encoding="ascii", errors="replace").split()[1])
    except (OSError, IndexError, ValueError):
        return None


def _connect_agent(attempts: _Attempts) -> paramiko.Agent | None:
    """The user's ssh-agent: a connection for each login, since paramiko's cannot be shared between threads.

    One that was forwarded from a machine that is gone may never answer.
    """
    try:
        return call_until(time.monotonic() + AGENT_WAIT_S, paramiko.Agent, lambda agent: agent.close())
    except HostError:
        attempts.skipped.append("the SSH agent (it does not answer)")
    except Exception:  # noqa: BLE001 - a broken agent must not hide the good key files
        attempts.skipped.append("the SSH agent (its answer makes no sense)")
    return None
