"""The address, limits, credentials and access lists of a session with ZooKeeper (pure)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

DEFAULT_PORT: Final = 2181
MIN_SESSION_MS: Final = 100
"""The shortest session timeout. In this time our process must renew the session three times."""
SESSION_TIMEOUT_MS: Final = 6_000
"""How long the servers keep the ephemeral znodes of a silent client. The classic consumers use the
same value. The servers may choose another value, which is then valid."""
CONNECT_TIMEOUT_MS: Final = 15_000
"""How long ``open`` waits for a session. Servers that were restarted elect a leader in less time.
"""
PERMISSIONS: Final = "cdrwa"
"""The letters of ZooKeeper's own command line: create, delete, read, write, administer."""


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One line of a znode's access list: an identity and its permissions."""

    scheme: str
    id: str
    permissions: str = PERMISSIONS

    def __post_init__(self) -> None:
        if not self.permissions or set(self.permissions) - set(PERMISSIONS):
            raise ValueError(f"permissions {self.permissions!r}: use letters of {PERMISSIONS!r}")


ANYONE: Final = (AccessRule("world", "anyone"),)
"""Everybody has all permissions. kazoo-go and the classic consumers create their znodes with this
list."""
CREATOR_ONLY: Final = (AccessRule("auth", ""),)
"""Only clients with the credentials of the creating session have permissions."""


@dataclass(frozen=True, slots=True)
class ZooKeeperTls:
    """TLS to the servers. Without ``ca_file`` the system's certificate authorities are trusted."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    checks_certificate: bool = True
    checks_hostname: bool = True


@dataclass(frozen=True, slots=True)
class ZooKeeperAddress:
    """The servers in a connection string, and the path below which all znodes are created."""

    hosts: tuple[str, ...]
    chroot: str
    """The path below which all znodes are created. It starts with a slash and does not end with
    one; "" for the root."""

    def __str__(self) -> str:
        return ",".join(self.hosts) + self.chroot


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The address, limits, credentials and access list of a session."""

    address: ZooKeeperAddress
    session_timeout_ms: int = SESSION_TIMEOUT_MS
    connect_timeout_ms: int = CONNECT_TIMEOUT_MS
    max_outstanding: int = 500
    """The largest number of calls without an answer. This is half of the number that a server
    accepts from all its clients (globalOutstandingLimit).
    """
    digest: str | None = field(default=None, repr=False)
    """``user:password`` for access lists of the scheme digest."""
    access: tuple[AccessRule, ...] = ANYONE
    """The access list of every znode that is created."""
    tls: ZooKeeperTls | None = None

    def __post_init__(self) -> None:
        if self.session_timeout_ms < MIN_SESSION_MS:
            raise ValueError(f"session_timeout_ms must be at least {MIN_SESSION_MS}")
        if self.connect_timeout_ms <= 0 or self.max_outstanding <= 0:
            raise ValueError("connect_timeout_ms and max_outstanding must be positive")
        if self.digest is not None and not all(self.digest.partition(":")):
            raise ValueError("digest must be user:password")
        if self.digest is None and any(rule.scheme == "auth" for rule in self.access):
            raise ValueError("an access list for the creator (scheme auth) needs a digest")


def parse_connection_string(text: str) -> ZooKeeperAddress:
    """Parse ``host1:2181,host2:2181/chroot``. Raises ValueError if the text has another form."""
    listed, slash, rest = text.strip().partition("/")
    hosts = tuple(_host(each.strip(), text) for each in listed.split(","))
    parts = rest.rstrip("/").split("/") if slash and rest.rstrip("/") else []
    if any(part in ("", ".", "..") for part in parts):
        raise ValueError(f"{text!r}: the chroot must be a path without empty, '.' or '..' parts")
    return ZooKeeperAddress(hosts, "".join(f"/{part}" for part in parts))


def _host(text: str, whole: str) -> str:
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]]+)(?::(\d{1,5}))?", text)
    if found is None or not 0 < int(found[2] or DEFAULT_PORT) < 1 << 16:
        raise ValueError(f"{whole!r}: {text!r} is not HOST:PORT; use host1:2181,host2:2181/chroot")
    return f"{found[1]}:{found[2] or DEFAULT_PORT}"
