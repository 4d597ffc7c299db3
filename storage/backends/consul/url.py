"""The URL of a store in Consul (pure, except that it reads files of TLS).

``consul://HOST:PORT/prefix?mirror=off&dc=dc1&tls=on&ca_file=...``
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

TOKEN_VARIABLE: Final = "CONSUL_HTTP_TOKEN"  # noqa: S105 - its name
"""The environment variable with the token. Consul's own programs read the same variable."""

DEFAULT_PORT: Final = 8500
DEFAULT_PREFIX: Final = "groupkeeper"
DEFAULT_MIRROR: Final = "groupkeeper/readers"
"""The beginning of the keys of ``groupkeeper.clients`` in Consul."""

_KNOWN: Final = ("mirror", "dc", "tls", "ca_file", "cert_file", "key_file")
_SWITCH: Final = {"on": True, "off": False}


class ConsulUrl(NamedTuple):
    """The address of a store."""

    address: str
    """HOST:PORT of an agent."""
    prefix: str
    """All keys of the store begin with this prefix and a slash."""
    mirror: str | None
    """The beginning of the keys of the mirror, a copy of the groups for other programs. None: there
    is no mirror."""
    token: str | None
    datacenter: str | None
    has_tls: bool
    ca_file: str | None
    cert_file: str | None
    key_file: str | None

    @property
    def name(self) -> str:
        """The URL for messages, without parameters."""
        return f"consul://{self.address}/{self.prefix}"

    def tls(self) -> ssl.SSLContext | None:
        """Return a context with the TLS files of the URL; None without TLS. Raises ValueError if a
        file cannot be read.
        """
        if not self.has_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:
            raise ValueError(f"the files of TLS cannot be read: {error}") from error
        return context


def parse_url(url: str, environment: Mapping[str, str]) -> ConsulUrl:
    """Split a URL into its parts. Raises ValueError if it is no URL of Consul.

    The token comes from the environment only, so that no URL has a secret.
    """
    parts = urlsplit(url)
    if parts.scheme != "consul":
        raise ValueError("use consul://HOST:PORT/PREFIX")
    if "@" in parts.netloc:
        raise ValueError(
            f"a URL of Consul has no user: set storage.password_file or {TOKEN_VARIABLE} to the "
            "token"
        )
    if not parts.hostname or "," in parts.netloc:
        raise ValueError(f"{parts.netloc!r} is not HOST:PORT of one agent of Consul")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    prefix = _prefix(unquote(parts.path).strip("/") or DEFAULT_PREFIX)
    asked = dict(parse_qsl(parts.query, keep_blank_values=True))
    if unknown := [key for key in asked if key not in _KNOWN]:
        raise ValueError(f"parameter {unknown[0]!r} is not known; use {', '.join(_KNOWN)}")
    files = [asked.get(key) or None for key in ("ca_file", "cert_file", "key_file")]
    switch = asked.get("tls", "on" if any(files) else "off")
    if switch not in _SWITCH:
        raise ValueError(f"parameter tls is {switch!r}; use on or off")
    return ConsulUrl(
        f"{host}:{parts.port or DEFAULT_PORT}",
        prefix,
        _mirror(asked.get("mirror", "on")),
        environment.get(TOKEN_VARIABLE) or None,
        asked.get("dc") or None,
        _SWITCH[switch],
        *files,
    )


def _mirror(asked: str) -> str | None:
    if asked in _SWITCH:
        return DEFAULT_MIRROR if _SWITCH[asked] else None
    return _prefix(asked.strip("/"))


def _prefix(text: str) -> str:
    if any(part in ("", ".", "..") for part in text.split("/")):
        raise ValueError(f"{text!r}: the prefix must have no empty, '.' or '..' parts")
    return text
