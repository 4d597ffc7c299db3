"""The URL of a store in ZooKeeper (pure).

``zookeeper://USER@HOST:PORT,HOST:PORT/chroot?mirror=off&tls=on&ca_file=...``
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from groupkeeper.storage.connections.zookeeper_settings import (
    ZooKeeperAddress,
    ZooKeeperTls,
    parse_connection_string,
)

PASSWORD_VARIABLE: Final = "ZOOKEEPER_PASSWORD"  # noqa: S105 - its name
"""The environment variable with the password of the user in the URL."""

_SWITCH: Final = {"on": True, "off": False}
_KNOWN: Final = ("mirror", "tls", "ca_file", "cert_file", "key_file")


class ZooKeeperUrl(NamedTuple):
    """The address of a store."""

    address: ZooKeeperAddress
    name: str
    """The URL for messages, without a user and without parameters."""
    user: str | None
    """The user for access lists of ZooKeeper's scheme "digest" (a user with a password)."""
    password: str | None
    has_mirror: bool
    tls: ZooKeeperTls | None

    @property
    def digest(self) -> str | None:
        """The user and the password in kazoo's form. Raises ValueError if the password is
        missing.
        """
        if self.user is None:
            return None
        if not self.password:
            raise ValueError(f"set {PASSWORD_VARIABLE} to the password of user {self.user!r}")
        return f"{self.user}:{self.password}"


def parse_url(url: str, environment: Mapping[str, str]) -> ZooKeeperUrl:
    """Split a URL into its parts. Raises ValueError if it is no URL of ZooKeeper.

    The password comes from the environment, or else from the URL.
    """
    parts = urlsplit(url)
    if parts.scheme != "zookeeper":
        raise ValueError("use zookeeper://HOST:PORT,HOST:PORT/chroot")
    credentials, _, hosts = parts.netloc.rpartition("@")
    user, _, written = credentials.partition(":")
    address = parse_connection_string(hosts + parts.path)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [key for key in asked if key not in _KNOWN]:
        raise ValueError(f"parameter {unknown[0]!r} is not known; use {', '.join(_KNOWN)}")
    password = environment.get(PASSWORD_VARIABLE) or unquote(written)
    return ZooKeeperUrl(
        address,
        f"zookeeper://{address}",
        unquote(user) or None,
        password or None,
        _switch(asked, "mirror", default=True),
        _tls(asked),
    )


def _tls(asked: Mapping[str, str]) -> ZooKeeperTls | None:
    ca_file, cert_file, key_file = [
        Path(asked[key]) if key in asked else None for key in ("ca_file", "cert_file", "key_file")
    ]
    if not _switch(asked, "tls", default=any((ca_file, cert_file, key_file))):
        return None
    return ZooKeeperTls(ca_file, cert_file, key_file)


def _switch(asked: Mapping[str, str], key: str, *, default: bool) -> bool:
    if key not in asked:
        return default
    if asked[key] not in _SWITCH:
        raise ValueError(f"parameter {key} is {asked[key]!r}; use on or off")
    return _SWITCH[asked[key]]
